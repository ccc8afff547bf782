// What has failed, the user's traceback first, and the rescales of a job.
import { html, useState, useEffect } from "./vendor/preact-htm.js";
import { ask } from "./driver.js";
import { clock, time } from "./text.js";

export function Failures({ summary }) {
  const { job, rescales } = summary, [found, setFound] = useState(null), [why, setWhy] = useState("");
  useEffect(() => { ask(`/jobs/${job.jid}/exceptions`).then(setFound, (e) => setWhy(e.message)); }, [job.jid, job.failures]);
  const entries = found?.exceptionHistory.entries ?? [];
  return html`<section class="card"><h2>Failures, the newest first</h2>
    ${why && html`<p class="bad">${why}</p>`}
    ${found && entries.length === 0 && html`<p class="soft">None.</p>`}
    ${entries.map((e) => html`<article key=${e.timestamp}><p><strong>${e.exceptionName}</strong> <span class="soft">at ${clock(e.timestamp)}</span></p><pre tabindex="0">${e.stacktrace}</pre></article>`)}
    ${found?.exceptionHistory.truncated && html`<p class="soft">Older ones are left out.</p>`}</section>
  <section class="card wide" tabindex="0"><h2>Rescales</h2>${rescales.length === 0 ? html`<p class="soft">None.</p>`
    : html`<table><thead><tr><th scope="col">At</th><th class="text" scope="col">Why</th><th class="text" scope="col">Parallelism</th><th scope="col">Waited for slots</th><th scope="col">Checkpoint</th><th scope="col">Restart</th></tr></thead>
      <tbody>${rescales.map((r) => html`<tr><td>${clock(r["end-timestamp"])}</td><td class="text">${r.trigger}</td>
        <td class="text">${r.vertices.map((v) => `${v.name}: ${v["previous-parallelism"]} → ${v["acquired-parallelism"]}`).join(", ")}</td>
        <td>${time(r["waited-ms"])}</td><td>${time(r["checkpoint-ms"])}</td><td>${time(r["restart-ms"])}</td></tr>`)}</tbody></table>`}</section>`;
}
