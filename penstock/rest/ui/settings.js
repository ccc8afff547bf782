// The settings of a job and of its checkpoints, and its slots.
import { html, useState, useEffect } from "./vendor/preact-htm.js";
import { ask } from "./driver.js";
import { bytes, time } from "./text.js";

const TIMES = ["interval", "timeout", "min_pause", "aligned_checkpoint_timeout"];
const HIDDEN = ["externalization", "changelog_storage", "state_changelog_enabled", "changelog_periodic_materialization_interval"];

export function Settings({ id }) {
  const [found, setFound] = useState(null), [why, setWhy] = useState("");
  useEffect(() => {
    Promise.all([ask(`/jobs/${id}/checkpoints/config`), ask(`/jobs/${id}/jobmanager/config`), ask("/taskmanagers")]).then(setFound, (e) => setWhy(e.message));
  }, [id]);
  if (!found) return html`<p class=${why ? "bad" : "soft"}>${why || "Asking the driver …"}</p>`;
  const [checkpoints, options, slots] = found;
  const rows = Object.entries(checkpoints).filter(([name]) => !HIDDEN.includes(name));
  const shown = (name, value) => (TIMES.includes(name) ? (value > 1e15 ? "off" : value === 0 ? "0" : time(value)) : String(value ?? "none"));
  return html`<section class="card wide" tabindex="0"><h2>Checkpoints</h2><table><tbody>
      ${rows.map(([name, value]) => html`<tr><th class="text" scope="row">${name.replaceAll("_", " ")}</th><td class="text">${shown(name, value)}</td></tr>`)}
      <tr><th class="text" scope="row">kept when the job is cancelled</th><td class="text">${String(checkpoints.externalization.enabled && !checkpoints.externalization.delete_on_cancellation)}</td></tr></tbody></table></section>
    <section class="card wide" tabindex="0"><h2>Options that are set</h2>${options.length === 0 ? html`<p class="soft">None: everything has its default.</p>` : html`<table><tbody>
      ${options.map((o) => html`<tr><th class="text" scope="row"><code>${o.key}</code></th><td class="text">${o.value}</td></tr>`)}</tbody></table>`}</section>
    <section class="card wide" tabindex="0"><h2>Slots</h2><table><thead><tr><th scope="col">Slot</th><th scope="col">Process</th><th scope="col">Tasks</th><th scope="col">Memory</th></tr></thead><tbody>
      ${slots.taskmanagers.filter((s) => s["job-id"] === id).map((s) => html`<tr><td>${s.id}</td><td>${s.path}</td><td>${s.assignedTasks}</td><td>${bytes(s.memory.residentBytes)}</td></tr>`)}</tbody></table></section>`;
}
