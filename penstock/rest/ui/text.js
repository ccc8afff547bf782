// How numbers, times and bytes are written in all pages.

export const time = (ms) =>
  ms === null || ms === undefined || ms < 0 ? "–"
  : ms < 1000 ? `${Math.round(ms)} ms`
  : ms < 60000 ? `${(ms / 1000).toFixed(1)} s`
  : ms < 3600000 ? `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`
  : `${Math.floor(ms / 3600000)} h ${Math.round((ms % 3600000) / 60000)} min`;

export const bytes = (count) => {
  if (count === null || count === undefined) return "–";
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (count < 1000 || unit === "GB") return `${count < 10 && unit !== "B" ? count.toFixed(1) : Math.round(count)} ${unit}`;
    count /= 1000;
  }
};

export const number = (value, digits = 0) =>
  value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits });

export const rate = (value) => (value >= 1e6 ? `${(value / 1e6).toFixed(1)} M` : value >= 1e4 ? `${(value / 1e3).toFixed(0)} k` : number(value));

export const percent = (share) => `${Math.round(100 * share)} %`;

export const clock = (wallMs) => (wallMs > 0 ? new Date(wallMs).toLocaleTimeString() : "–");

export const watermark = (ms) => (ms === null || ms === undefined ? "–" : new Date(ms).toISOString().replace("T", " ").replace("Z", ""));

// How loud a state of a job or of a checkpoint is.
export const tone = (state) =>
  ({ RUNNING: "good", FINISHED: "good", COMPLETED: "good", FAILED: "bad", FAILING: "bad", RESTARTING: "warn" })[state] ?? "soft";
