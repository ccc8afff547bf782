// The checkpoints of a job: a column per checkpoint, and of a chosen one what each subtask waited for.
import { html, useState, useEffect } from "./vendor/preact-htm.js";
import { ask } from "./driver.js";
import { Findings } from "./overview.js";
import { bytes, clock, number, time, tone } from "./text.js";

const PARTS = [["delay", "start delay: the barrier is in the queues"], ["align", "alignment: from the first barrier to the last"],
  ["sync", "synchronous: the stream stands still"], ["async", "asynchronous: written next to the stream"], ["rest", "waits for the other subtasks of its slot, then for the driver"]];
const LANES_MAX = 200;

export function Checkpoints({ summary, chosen, go }) {
  const { checkpoints, job } = summary;
  const number_ = chosen ? Number(chosen) : null;
  return html`<${Counts} ...${checkpoints} />
    <section class="card"><h2>Durations</h2><${Columns} history=${checkpoints.history} chosen=${number_} go=${go} /></section>
    ${number_ !== null && html`<${Details} key=${number_} job=${job} id=${number_} />`}
    <section class="card wide" tabindex="0"><h2>History</h2><${History} history=${checkpoints.history} chosen=${number_} go=${go} /></section>
    <section class="card wide" tabindex="0"><h2>Summary of the completed ones above</h2><${Summary} summary=${checkpoints.summary} /></section>`;
}

function Counts({ counts, latest }) {
  const tile = (label, value, more, kind) => html`<div class="tile"><div class="label">${label}</div><div class=${`value ${kind ?? ""}`}>${value}</div><div class="more">${more}</div></div>`;
  const at = (c) => (c ? `${c.id}, at ${clock(c.trigger_timestamp)}` : "none");
  return html`<div class="tiles">${tile("Completed", number(counts.completed), `newest: ${at(latest.completed)}`)}
    ${tile("In progress", counts.in_progress, `triggered: ${number(counts.total)}`)}
    ${tile("Failed", number(counts.failed), `newest: ${at(latest.failed)}`, counts.failed ? "bad" : "")}
    ${tile("Savepoint", latest.savepoint ? latest.savepoint.id : "none", latest.savepoint?.external_path ?? "")}
    ${tile("Restored", number(counts.restored), latest.restored ? `from ${latest.restored.id}, at ${clock(latest.restored.restore_timestamp)}` : "not since the start")}</div>`;
}

function Columns({ history, chosen, go }) {
  const oldest = [...history].reverse(), longest = Math.max(1, ...oldest.map((c) => c.end_to_end_duration));
  if (!oldest.length) return html`<p class="soft">None yet.</p>`;
  return html`<div class="columns" role="group" aria-label="Duration of each checkpoint">${oldest.map((c) => {
    const say = `Checkpoint ${c.id}, ${c.status.toLowerCase()}, ${time(c.end_to_end_duration)}`;
    const kind = c.status === "FAILED" ? "failed" : c.status === "IN_PROGRESS" ? "open" : c.is_savepoint ? "savepoint" : "";
    return html`<button key=${c.id} class=${`${kind} ${c.id === chosen ? "chosen" : ""}`} title=${say} aria-label=${say}
      style=${{ height: `${Math.max(4, (100 * Math.max(0, c.end_to_end_duration)) / longest)}%` }} onClick=${() => go("checkpoints", c.id)}></button>`;
  })}</div><p class="legend"><span>The highest: ${time(longest)}</span><span>${oldest.length} checkpoints, the oldest on the left. Choose one.</span></p>`;
}

function History({ history, chosen, go }) {
  return html`<table><thead><tr><th scope="col">Id</th><th scope="col">Status</th><th scope="col">Kind</th><th scope="col">Acknowledged</th><th scope="col">Triggered</th>
      <th scope="col">Duration</th><th scope="col">Published after</th><th scope="col">Written</th><th scope="col">State</th><th scope="col">In flight</th><th class="text" scope="col">Path or reason</th></tr></thead>
    <tbody>${history.map((c) => html`<tr key=${c.id} class=${c.id === chosen ? "open" : ""}>
      <td><button class="link" onClick=${() => go("checkpoints", c.id)}>${c.id}</button></td><td class=${tone(c.status)}>${c.status.toLowerCase().replace("_", " ")}</td>
      <td>${(c.is_savepoint ? "savepoint, " : "") + (c.unaligned_checkpoint ? "unaligned" : "aligned")}</td>
      <td>${c.num_acknowledged_subtasks} / ${c.num_subtasks}</td><td>${clock(c.trigger_timestamp)}</td><td>${time(c.end_to_end_duration)}</td>
      <td>${time(c.publication_duration)}</td><td>${bytes(c.checkpointed_size)}</td><td>${bytes(c.state_size)}</td><td>${bytes(c.persisted_data)}</td>
      <td class="text">${c.external_path ?? c.failure_message ?? ""}</td></tr>`)}</tbody></table>`;
}

function Details({ job, id }) {
  const [found, setFound] = useState(null), [why, setWhy] = useState("");
  useEffect(() => {
    let is_shown = true;
    const look = async () => {
      const base = `/jobs/${job.jid}/checkpoints/details/${id}`;
      const [details, diagnosis, ...vertices] = await Promise.all([ask(base), ask(`/jobs/${job.jid}/diagnosis?checkpoint=${id}`),
        ...job.vertices.map((v) => ask(`${base}/subtasks/${v.id}`))]);
      if (is_shown) setFound({ details, diagnosis, vertices });
      if (is_shown && details.status === "IN_PROGRESS") setTimeout(look, 1000);
    };
    look().catch((error) => is_shown && setWhy(error.message));
    return () => { is_shown = false; };
  }, [job.jid, id]);
  if (why) return html`<section class="card"><p class="soft">${why}</p></section>`;
  if (!found) return html`<section class="card"><p class="soft">Asking for checkpoint ${id} …</p></section>`;
  const { details, diagnosis, vertices } = found;
  return html`<${Findings} findings=${diagnosis.findings} calm=${`Checkpoint ${id} has nothing to explain.`} />
    <section class="card"><h2>Checkpoint ${id}: what each subtask waited for</h2>
      <p class="legend">${PARTS.map(([kind, label]) => html`<span><i class=${kind}></i>${label}</span>`)}</p>
      <${Lanes} job=${job} vertices=${vertices} />
      ${details.publication_duration !== undefined && html`<p class="soft">It was in the log ${time(details.publication_duration)} after its trigger.</p>`}</section>`;
}

function Lanes({ job, vertices }) {
  const lanes = vertices.flatMap((v, i) => v.subtasks.map((s) => ({ ...s, vertex: job.vertices[i], of: v.num_subtasks })));
  const done = lanes.filter((s) => s.status === "completed"), longest = Math.max(1, ...done.map((s) => s.end_to_end_duration));
  const shown = lanes.length <= LANES_MAX ? lanes : [...lanes].sort((a, b) => (b.end_to_end_duration ?? Infinity) - (a.end_to_end_duration ?? Infinity)).slice(0, LANES_MAX);
  return html`<div>${shown.map((s) => html`<${Lane} key=${s.vertex.id + s.index} lane=${s} longest=${longest} />`)}
    ${shown.length < lanes.length && html`<p class="soft">The ${LANES_MAX} slowest of ${number(lanes.length)}.</p>`}</div>`;
}

function Lane({ lane, longest }) {
  const name = `${lane.vertex.name} ${lane.index + 1}/${lane.of}`;
  if (lane.status !== "completed") return html`<div class="lane"><span class="name" title=${name}>${name}</span><span class="warn">not acknowledged</span><span></span></div>`;
  const written = Math.max(0, lane.checkpoint.async - lane.checkpoint.sync);
  const spans = [["delay", lane.start_delay], ["align", lane.alignment.duration], ["sync", lane.checkpoint.sync], ["async", written]];
  spans.push(["rest", Math.max(0, lane.end_to_end_duration - spans.reduce((sum, [, ms]) => sum + ms, 0))]);
  const say = spans.map(([kind, ms]) => `${PARTS.find(([k]) => k === kind)[1].split(":")[0]} ${time(ms)}`).join(", ");
  const more = `${say}; ${bytes(lane.checkpointed_size)} written, ${bytes(lane.alignment.persisted)} in flight, ${lane.unaligned_checkpoint ? "unaligned" : "aligned"}`;
  return html`<div class="lane" title=${more}><span class="name">${name}</span>
    <span class="bar" role="img" aria-label=${more}>${spans.map(([kind, ms]) => html`<i class=${kind} style=${{ width: `${(100 * ms) / longest}%` }}></i>`)}</span>
    <span class="time">${time(lane.end_to_end_duration)}</span></div>`;
}

function Summary({ summary }) {
  const rows = [["Duration", "end_to_end_duration", time], ["Written", "checkpointed_size", bytes], ["State", "state_size", bytes], ["In flight", "persisted_data", bytes]];
  const names = [["min", "least"], ["p50", "median"], ["avg", "mean"], ["p90", "90 %"], ["p99", "99 %"], ["p999", "99.9 %"], ["max", "most"]];
  return html`<table><thead><tr><th scope="col"></th>${names.map(([, label]) => html`<th scope="col">${label}</th>`)}</tr></thead>
    <tbody>${rows.map(([label, name, text]) => html`<tr><td>${label}</td>${names.map(([key]) => html`<td>${text(summary[name][key])}</td>`)}</tr>`)}</tbody></table>`;
}
