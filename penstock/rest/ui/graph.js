// Draws the job's graph: layers from left to right (above each other on a phone), coloured by how busy each vertex is.
import { html, useMemo } from "./vendor/preact-htm.js";
import { Graph, layout } from "./vendor/dagre.js";
import { percent, rate, number } from "./text.js";

const WIDTH = 218, HEIGHT = 92;

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export function JobGraph({ job, pressure, chosen, choose }) {
  const down = matchMedia("(max-width: 600px)").matches;
  const shape = job.plan.nodes.map((n) => [n.id, (n.inputs ?? []).map((i) => [i.id, i.ship_strategy])]);
  const drawn = useMemo(() => place(shape, down), [JSON.stringify(shape), down]);
  return html`<div class="graph wide" tabindex="0">
    <svg role="group" aria-label="The job's graph" viewBox="0 0 ${drawn.width} ${drawn.height}" width=${drawn.width} height=${drawn.height}>
      <defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
      ${drawn.edges.map((e) => html`<path class="edge" d=${e.path} marker-end="url(#end)" />
        <text class="small" text-anchor="middle" x=${e.x} y=${e.y - 5}>${e.label}</text>`)}
      ${job.vertices.map((vertex, i) => html`<${Node} vertex=${vertex} load=${pressure[i]} at=${drawn.nodes[vertex.id]}
        chosen=${chosen === vertex.id} choose=${choose} />`)}
    </svg>
    <p class="legend"><span><i class="busy"></i>busy</span><span><i class="pressed"></i>backpressured: waits for the vertices behind it</span><span><i class="idle"></i>idle</span></p>
  </div>`;
}

function Node({ vertex, load, at, chosen, choose }) {
  const left = at.x - WIDTH / 2, top = at.y - HEIGHT / 2, inner = WIDTH - 24;
  const lines = [
    `${percent(load.busy)} busy, ${percent(load.backpressured)} backpressured`,
    `${rate(load["rows-in-per-second"])} rows/s in, ${rate(load["rows-out-per-second"])} out`,
  ];
  const say = `${vertex.name}, parallelism ${vertex.parallelism}: ${lines.join("; ")}`;
  const go = () => choose(chosen ? null : vertex.id);
  return html`<g class="node ${chosen ? "chosen" : ""}" tabindex="0" role="button" aria-pressed=${chosen} aria-label=${say}
      onClick=${go} onKeyDown=${(e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), go())}>
    <title>${vertex.name}</title>
    <rect class="box" x=${left} y=${top} width=${WIDTH} height=${HEIGHT} rx="9" />
    <text x=${left + 12} y=${top + 22} font-weight="600">${short(vertex.name, 22)}</text>
    <text class="small" x=${left + WIDTH - 12} y=${top + 22} text-anchor="end">×${vertex.parallelism}</text>
    <text class="small" x=${left + 12} y=${top + 42}>${lines[0]}</text>
    <text class="small" x=${left + 12} y=${top + 59}>${lines[1]}</text>
    <rect class="idle" x=${left + 12} y=${top + 70} width=${inner} height="9" rx="3" />
    <rect class="busy" x=${left + 12} y=${top + 70} width=${Math.min(1, load.busy) * inner} height="9" rx="3" />
    <rect class="pressed" x=${left + 12 + Math.min(1, load.busy) * inner} y=${top + 70}
      width=${Math.max(0, Math.min(1 - load.busy, load.backpressured)) * inner} height="9" rx="3" />
  </g>`;
}

function place(shape, down) {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: down ? "TB" : "LR", ranksep: down ? 46 : 88, nodesep: 26, marginx: 6, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const [id] of shape) graph.setNode(id, { width: WIDTH, height: HEIGHT });
  shape.forEach(([id, inputs]) => inputs.forEach(([from, label], i) => graph.setEdge(from, id, { label }, String(i))));
  layout(graph);
  const nodes = Object.fromEntries(shape.map(([id]) => [id, graph.node(id)]));
  const edges = graph.edges().map((e) => {
    const { points, label } = graph.edge(e), middle = points[Math.floor(points.length / 2)];
    return { path: "M" + points.map((p) => `${p.x},${p.y}`).join("L"), label: label.toLowerCase(), x: middle.x, y: middle.y };
  });
  const { width, height } = graph.graph();
  return { nodes, edges, width: width || WIDTH, height: height || HEIGHT };
}

export const lagText = (rows) => (rows === null || rows === undefined ? "not known" : `${number(rows)} rows behind`);
