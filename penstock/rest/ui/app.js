// The dashboard: which page is shown, and what all pages share.
import { html, render, useState, useEffect, useCallback } from "./vendor/preact-htm.js";
import { ask, follow, setToken, takeToken } from "./driver.js";
import { Overview } from "./overview.js";
import { Checkpoints } from "./checkpoints.js";
import { Failures } from "./failures.js";
import { Settings } from "./settings.js";
import { Actions } from "./actions.js";
import { clock, time, tone } from "./text.js";

const TABS = [["overview", "Overview"], ["checkpoints", "Checkpoints"], ["failures", "Failures"], ["settings", "Settings"]];

// "#/JOB/TAB/REST"
const route = () => location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);

function App() {
  const [known, setKnown] = useState(() => Boolean(takeToken()));
  const [where, setWhere] = useState(route);
  useEffect(() => {
    const go = () => { if (takeToken()) setKnown(true); setWhere(route()); };
    addEventListener("hashchange", go);
    return () => removeEventListener("hashchange", go);
  }, []);
  if (!known) return html`<${AskToken} given=${() => setKnown(true)} />`;
  const [job, tab = "overview", rest] = where;
  const forget = () => setKnown(false);
  return job ? html`<${Job} key=${job} id=${job} tab=${tab} rest=${rest} forget=${forget} />` : html`<${Jobs} forget=${forget} />`;
}

function AskToken({ given }) {
  const [token, setText] = useState("");
  return html`<main><form class="card" onSubmit=${(e) => { e.preventDefault(); setToken(token.trim()); given(); }}>
    <h2>Which job may you see?</h2>
    <p>Open the address that your run has printed: it carries the token of the job. Or enter the token; it is in the file of the job
      in <code>~/.penstock/jobs</code>, which only the user who started the job can read.</p>
    <p><label>Token <input type="password" value=${token} onInput=${(e) => setText(e.target.value)} autocomplete="off" /></label>
    ${" "}<button>Show the jobs</button></p>
  </form></main>`;
}

function Jobs({ forget }) {
  const [jobs, setJobs] = useState(null), [lost, setLost] = useState("");
  useEffect(() => {
    const look = async () => {
      try {
        const found = (await ask("/jobs/overview")).jobs;
        setJobs(found);
        setLost("");
        if (found.length === 1 && !sessionStorage.getItem("penstock-seen")) {
          sessionStorage.setItem("penstock-seen", "1");
          location.hash = `#/${found[0].jid}/overview`;
        }
      } catch (error) {
        if (error.status === 401) return forget();
        setLost(error.status ? error.message : "The driver does not answer. It may have ended.");
      }
    };
    look();
    const timer = setInterval(look, 2000);
    return () => clearInterval(timer);
  }, []);
  return html`<header class="top"><img src="icon.svg" alt="" /><h1>Jobs of this driver</h1></header>
    ${lost && html`<div class="lost" role="alert">${lost}</div>`}
    <main><div class="card wide" tabindex="0">${jobs === null ? html`<p class="soft">Asking the driver …</p>` : jobs.length === 0
      ? html`<p class="soft">No job runs in this driver.</p>`
      : html`<table><thead><tr><th scope="col">Job</th><th scope="col">State</th><th scope="col">Since</th><th scope="col">For</th><th scope="col">Tasks</th></tr></thead>
        <tbody>${jobs.map((job) => html`<tr key=${job.jid}><td class="text"><a href=${`#/${job.jid}/overview`}>${job.name}</a></td>
          <td><${State} state=${job.state} /></td><td>${clock(job["start-time"])}</td><td>${time(job.duration)}</td><td>${job.tasks.total}</td></tr>`)}</tbody></table>`}
    </div></main>`;
}

export const State = ({ state }) => html`<span class=${`pill ${tone(state)}`}>${state}</span>`;

function Job({ id, tab, rest, forget }) {
  const [summary, setSummary] = useState(null), [lost, setLost] = useState("");
  useEffect(() => follow(id, (s) => { setSummary(s); setLost(""); }, (text, status) => (status === 401 ? forget() : setLost(text))), [id]);
  const go = useCallback((...parts) => { location.hash = "#/" + [id, ...parts].map(encodeURIComponent).join("/"); }, [id]);
  useEffect(() => { document.title = summary ? `${summary.job.name}: Penstock` : "Penstock"; }, [summary?.job.name]);
  if (summary === null) {
    return html`<main>${lost ? html`<div class="lost" role="alert">${lost}</div><p><a href="#/">All jobs</a></p>` : html`<p class="soft">Asking the driver …</p>`}</main>`;
  }
  const job = summary.job, failures = summary.job.failures ?? 0;
  return html`
    <header class="top"><a href="#/" aria-label="All jobs"><img src="icon.svg" alt="" /></a><h1>${job.name}</h1><${State} state=${job.state} />
      <span class="soft">for ${time(job.duration)}</span><span class="id">${job.jid}</span><${Actions} job=${job} /></header>
    <nav class="tabs" aria-label="Pages of this job">${TABS.map(([name, label]) => html`<a href=${`#/${id}/${name}`} aria-current=${tab === name ? "page" : null}>${label}${name === "failures" && failures ? ` (${failures})` : ""}</a>`)}</nav>
    ${lost && html`<div class="lost" role="alert">${lost} What you see is of ${clock(job.now)}.</div>`}
    <main>${tab === "checkpoints" ? html`<${Checkpoints} summary=${summary} chosen=${rest} go=${go} />`
      : tab === "failures" ? html`<${Failures} summary=${summary} />`
      : tab === "settings" ? html`<${Settings} id=${id} />`
      : html`<${Overview} summary=${summary} chosen=${rest} go=${go} />`}</main>`;
}

const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
