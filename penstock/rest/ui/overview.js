// The first page of a job: what slows it down, its graph, its vertices and, of a chosen one, its subtasks.
import { html, useState, useEffect } from "./vendor/preact-htm.js";
import { ask } from "./driver.js";
import { JobGraph, lagText } from "./graph.js";
import { bytes, number, percent, rate, time, watermark } from "./text.js";

const SHOWN_MAX = 100;

export function Findings({ findings, calm = "Nothing slows this job down." }) {
  return html`<section class="card" aria-live="polite"><h2>Diagnosis</h2><ul class="findings">
    ${findings.length === 0 ? html`<li class="calm">${calm}</li>`
      : findings.map((f) => html`<li key=${f.kind + f.vertex}>${f.text}.${f.advice && html`<span class="advice">${f.advice}.</span>`}</li>`)}
  </ul></section>`;
}

export function Overview({ summary, chosen, go }) {
  const { job, checkpoints, pressure, findings } = summary;
  return html`<${Tiles} ...${summary} />
    <${Findings} findings=${findings} />
    <section class="card"><h2>Job graph</h2>
      <${JobGraph} job=${job} pressure=${pressure} chosen=${chosen} choose=${(id) => (id ? go("overview", id) : go("overview"))} /></section>
    <section class="card wide" tabindex="0"><h2>Vertices</h2><${Vertices} job=${job} pressure=${pressure} chosen=${chosen} go=${go} /></section>
    <${Counters} counters=${summary.accumulators} />
    ${chosen && html`<${Subtasks} key=${chosen} job=${job} id=${chosen} stamp=${job.now} />`}
    <p class="soft">${checkpoints.counts.completed} checkpoints so far. <a href=${`#/${job.jid}/checkpoints`}>Checkpoints</a> shows what each waited for.</p>`;
}

function Tiles({ job, checkpoints, pressure }) {
  const sources = pressure.filter((p, i) => !(job.plan.nodes.find((n) => n.id === job.vertices[i].id)?.inputs ?? []).length);
  const read = sources.reduce((sum, p) => sum + p["rows-out-per-second"], 0);
  const lags = sources.map((p) => p["lag-rows"]).filter((lag) => lag !== null);
  const last = checkpoints.latest.completed, failed = checkpoints.counts.failed;
  const age = last ? job.now - last.trigger_timestamp : null;
  return html`<div class="tiles">
    <div class="tile"><div class="label">Rows read</div><div class="value">${rate(read)}/s</div><div class="more">${lags.length ? lagText(lags.reduce((a, b) => a + b, 0)) : "lag not known"}</div></div>
    <div class="tile"><div class="label">Last checkpoint</div><div class="value">${last ? time(last.end_to_end_duration) : "none yet"}</div>
      <div class="more">${last ? `${time(age)} ago, ${last.unaligned_checkpoint ? "unaligned" : "aligned"}` : "see Settings"}</div></div>
    <div class="tile"><div class="label">Checkpoint duration</div><div class="value">${checkpoints.history.length ? time(checkpoints.summary.end_to_end_duration.p50) : "–"}</div>
      <div class="more">median; 99 %: ${time(checkpoints.summary.end_to_end_duration.p99)}</div></div>
    <div class="tile"><div class="label">Checkpoints</div><div class="value">${number(checkpoints.counts.completed)}</div>
      <div class=${`more ${failed ? "bad" : ""}`}>${number(failed)} failed, ${checkpoints.counts.in_progress} in progress</div></div>
    <div class="tile"><div class="label">State</div><div class="value">${last ? bytes(last.state_size) : "–"}</div><div class="more">${last ? `${bytes(last.persisted_data)} in flight` : ""}</div></div>
    <div class="tile"><div class="label">Restarts</div><div class=${`value ${job.restarts ? "warn" : ""}`}>${number(job.restarts)}</div><div class="more">${job.state.toLowerCase()} for ${time(job.now - job.timestamps[job.state])}</div></div>
  </div>`;
}

export const Load = ({ busy, pressed }) => html`<span class="bar" role="img" aria-label=${`${percent(busy)} busy, ${percent(pressed)} backpressured`}>
  <i class="busy" style=${{ width: `${100 * busy}%` }}></i><i class="pressed" style=${{ width: `${100 * Math.min(pressed, 1 - busy)}%` }}></i></span>`;

function Vertices({ job, pressure, chosen, go }) {
  return html`<table><thead><tr><th scope="col">Vertex</th><th scope="col">Slots</th><th scope="col">Load</th><th scope="col">Busy</th><th scope="col">Backpressured</th>
      <th scope="col">Rows/s in</th><th scope="col">Rows/s out</th><th scope="col">Queued</th><th scope="col">Watermark (UTC)</th></tr></thead>
    <tbody>${job.vertices.map((v, i) => {
      const p = pressure[i];
      return html`<tr key=${v.id} class=${chosen === v.id ? "open" : ""}><td class="text"><button class="link" aria-expanded=${chosen === v.id}
          onClick=${() => (chosen === v.id ? go("overview") : go("overview", v.id))}>${v.name}</button></td>
        <td>${v.parallelism}</td><td><${Load} busy=${p.busy} pressed=${p.backpressured} /></td><td>${percent(p.busy)}</td>
        <td class=${p.level === "high" ? "bad" : p.level === "low" ? "warn" : ""}>${percent(p.backpressured)}</td>
        <td>${rate(p["rows-in-per-second"])}</td><td>${rate(p["rows-out-per-second"])}</td><td>${bytes(p["queued-bytes"])}</td><td>${watermark(p.watermark)}</td></tr>`;
    })}</tbody></table>`;
}

function Counters({ counters }) {
  const names = Object.keys(counters ?? {}).sort();
  return names.length > 0 && html`<section class="card wide" tabindex="0"><h2>Counters of your functions</h2><table><tbody>
    ${names.map((name) => html`<tr><th class="text" scope="row">${name}</th><td>${number(counters[name])}</td></tr>`)}</tbody></table></section>`;
}

// The busiest first: of ten thousand subtasks the first hundred say what there is to say.
function Subtasks({ job, id, stamp }) {
  const [metrics, setMetrics] = useState(null), [all, setAll] = useState(false), [why, setWhy] = useState("");
  useEffect(() => {
    const names = ["busyTimeMsPerSecond", "backPressuredTimeMsPerSecond", "numRecordsIn", "numRecordsOut", "numRecordsInPerSecond", "queuedBytes", "longestStepMs"];
    ask(`/jobs/${job.jid}/vertices/${id}/table?get=${names.join(",")}`).then((t) => { setMetrics(t); setWhy(""); }, (e) => setWhy(e.message));
  }, [id, stamp]);
  const vertex = job.vertices.find((v) => v.id === id);
  if (!vertex) return null;
  if (why) return html`<section class="card"><p class="soft">${why}</p></section>`;
  if (metrics === null) return html`<section class="card"><p class="soft">Asking for the subtasks …</p></section>`;
  const total = metrics.subtasks.reduce((sum, s) => sum + s.numRecordsIn, 0) || 1;
  const sorted = [...metrics.subtasks].sort((a, b) => b.busyTimeMsPerSecond - a.busyTimeMsPerSecond || a.subtask - b.subtask);
  const shown = all ? sorted : sorted.slice(0, SHOWN_MAX);
  return html`<section class="card wide" tabindex="0"><h2>Subtasks of ${vertex.name}, the busiest first</h2>
    <table><thead><tr><th scope="col">Subtask</th><th scope="col">Load</th><th scope="col">Busy</th><th scope="col">Backpressured</th><th scope="col">Rows in</th>
      <th scope="col">Share of rows</th><th scope="col">Rows/s in</th><th scope="col">Rows out</th><th scope="col">Queued</th><th scope="col">Longest step</th></tr></thead>
    <tbody>${shown.map((s) => html`<tr key=${s.subtask}><td>${s.subtask + 1}</td><td><${Load} busy=${s.busyTimeMsPerSecond / 1000} pressed=${s.backPressuredTimeMsPerSecond / 1000} /></td>
      <td>${percent(s.busyTimeMsPerSecond / 1000)}</td><td>${percent(s.backPressuredTimeMsPerSecond / 1000)}</td><td>${number(s.numRecordsIn)}</td>
      <td class=${vertex.parallelism > 1 && s.numRecordsIn / total > 2 / vertex.parallelism ? "bad" : ""}>${percent(s.numRecordsIn / total)}</td>
      <td>${rate(s.numRecordsInPerSecond)}</td><td>${number(s.numRecordsOut)}</td><td>${bytes(s.queuedBytes)}</td><td>${time(s.longestStepMs)}</td></tr>`)}</tbody></table>
    ${sorted.length > shown.length && html`<p><button onClick=${() => setAll(true)}>Show all ${number(sorted.length)}</button></p>`}</section>`;
}
