// What can be asked of a job: a savepoint, a stop, another parallelism, its end.
import { html, useState, useRef, useEffect } from "./vendor/preact-htm.js";
import { ask } from "./driver.js";

const WAIT_MS = 500;

// Begins an operation, and waits for its outcome.
async function begin(path, status, options) {
  const id = (await ask(path, options))["request-id"];
  if (!id) return {};
  for (;;) {
    const answer = await ask(`${status}/${id}`);
    if (answer.status.id === "COMPLETED") {
      const cause = answer.operation["failure-cause"];
      if (cause) throw new Error(cause["stack-trace"]);
      return answer.operation;
    }
    await new Promise((go) => setTimeout(go, WAIT_MS));
  }
}

const KINDS = {
  savepoint: { title: "Take a savepoint", go: "Take it", text: "The job continues. The savepoint is yours: nothing deletes it.", directory: true,
    run: (base, f) => begin(`${base}/savepoints`, `${base}/savepoints`, { method: "POST", body: f.directory ? { "target-directory": f.directory } : {} }),
    done: (o) => `The savepoint is complete: ${o.location}` },
  stop: { title: "Stop with a savepoint", go: "Stop the job", text: "The job ends with a savepoint, from which you can start it again.", directory: true, drain: true, danger: true,
    run: (base, f) => begin(`${base}/stop`, `${base}/savepoints`, { method: "POST", body: { drain: Boolean(f.drain), ...(f.directory ? { targetDirectory: f.directory } : {}) } }),
    done: (o) => `The job has stopped. Start it again with: penstock run -s ${o.location} <program>` },
  rescale: { title: "Change the parallelism", go: "Rescale", text: "The job takes a checkpoint and continues with so many slots, once Spark has them.", parallelism: true,
    run: (base, f) => begin(`${base}/rescaling?parallelism=${Number(f.parallelism)}`, `${base}/rescaling`, { method: "PATCH" }),
    done: () => "The job runs with the new parallelism." },
  cancel: { title: "Cancel the job", go: "Cancel the job", text: "The job ends now, without a savepoint. Rows since its last checkpoint are not in its output.", danger: true,
    run: (base) => begin(`${base}?mode=cancel`, `${base}/cancellation`, { method: "PATCH" }), done: () => "The job is being cancelled." },
};

export function Actions({ job }) {
  const [kind, setKind] = useState(null);
  if (["FINISHED", "CANCELED", "FAILED"].includes(job.state)) return null;
  return html`<div class="actions"><button onClick=${() => setKind("savepoint")}>Savepoint</button><button onClick=${() => setKind("rescale")}>Rescale</button>
    <button class="danger" onClick=${() => setKind("stop")}>Stop</button><button class="danger" onClick=${() => setKind("cancel")}>Cancel</button></div>
    ${kind && html`<${Ask} key=${kind} job=${job} what=${KINDS[kind]} close=${() => setKind(null)} />`}`;
}

function Ask({ job, what, close }) {
  const dialog = useRef(null), [fields, setFields] = useState({ parallelism: Math.max(...job.vertices.map((v) => v.parallelism)) });
  const [state, setState] = useState({ at: "asking" });
  useEffect(() => { dialog.current.showModal(); }, []);
  const set = (name) => (e) => setFields({ ...fields, [name]: e.target.type === "checkbox" ? e.target.checked : e.target.value });
  const run = async (e) => {
    e.preventDefault();
    setState({ at: "waiting" });
    try {
      setState({ at: "done", text: what.done(await what.run(`/jobs/${job.jid}`, fields)) });
    } catch (error) {
      setState({ at: "failed", text: error.message });
    }
  };
  return html`<dialog ref=${dialog} onClose=${close} aria-label=${what.title}><form onSubmit=${run}><h2>${what.title}</h2><p>${what.text}</p>
    ${what.directory && html`<label>Directory <input type="text" placeholder="the configured one" value=${fields.directory ?? ""} onInput=${set("directory")} /></label>`}
    ${what.drain && html`<label><input type="checkbox" checked=${fields.drain} onChange=${set("drain")} /> Drain: end event time and fire all windows first. Only if you will not start it again.</label>`}
    ${what.parallelism && html`<label>Slots <input type="number" min="1" max="10000" required value=${fields.parallelism} onInput=${set("parallelism")} /></label>`}
    <p role="status" class=${state.at === "failed" ? "bad" : ""}>${state.at === "waiting" ? "Waiting for the job …" : state.text ?? ""}</p>
    <div class="row"><button type="button" onClick=${() => dialog.current.close()}>${state.at === "done" ? "Close" : "Back"}</button>
      ${state.at !== "done" && html`<button class=${what.danger ? "danger" : ""} disabled=${state.at === "waiting"}>${what.go}</button>`}</div></form></dialog>`;
}
