// Asks the driver. The token comes with the address that a run prints, behind "#token=", which no browser sends anywhere.

const KEY = "penstock-token";

export function takeToken() {
  const found = /[#&]token=([^&]+)/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname + "#/");
  }
  return sessionStorage.getItem(KEY);
}

export const setToken = (token) => sessionStorage.setItem(KEY, token);

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, { method = "GET", body, signal } = {}) {
  const response = await fetch(path, {
    method,
    signal,
    headers: { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}`, ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body ? JSON.stringify(body) : undefined,
  });
  const answer = await response.json().catch(() => ({ errors: [`HTTP status ${response.status}`] }));
  if (!response.ok) throw new Refused(response.status, (answer.errors ?? [`HTTP status ${response.status}`]).join("; "));
  return answer;
}

// Calls `take` with each new summary of a job, `lose` with a sentence while the driver does not answer. Returns what ends it.
export function follow(job, take, lose) {
  const ending = new AbortController();
  (async () => {
    let pause = 500;
    while (!ending.signal.aborted) {
      try {
        const response = await fetch(`/jobs/${job}/events`, {
          signal: ending.signal,
          headers: { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` },
        });
        if (!response.ok) throw new Refused(response.status, ((await response.json()).errors ?? []).join("; "));
        const reader = response.body.getReader(), decoder = new TextDecoder();
        let rest = "";
        for (;;) {
          const { done, value } = await reader.read();
          if (done) throw new Error("the driver has closed the connection");
          rest += decoder.decode(value, { stream: true });
          const events = rest.split("\n\n");
          rest = events.pop();
          for (const event of events) if (event.startsWith("data: ")) take(JSON.parse(event.slice(6)));
          pause = 500;
        }
      } catch (error) {
        if (ending.signal.aborted) return;
        lose(error instanceof Refused ? error.message : "The driver does not answer. It may have ended, or restart.", error.status);
        await new Promise((go) => setTimeout(go, pause));
        pause = Math.min(2 * pause, 5000);
      }
    }
  })();
  return () => ending.abort();
}
