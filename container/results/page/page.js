// Opens a volume's iiif.json in Mirador, with the text of the page that is shown beside it.
//
// ?manifest=<URL>  the volume (same origin)      ?page=<number>  the page to begin with
//
// The text is read from the ALTO that each canvas names in `seeAlso`. Each line also becomes an annotation, which
// Mirador outlines on the image; a click on a line marks it in both places.

const WINDOW = "volume";
const ALTO = "application/xml+alto";

const parameters = new URLSearchParams(location.search);
const title = document.getElementById("title");
const note = document.getElementById("note");
const list = document.getElementById("lines");

/** Text, outline and place of each line of an ALTO file, in the canvas's own pixels. */
function linesOf(alto, canvas) {
  const page = alto.getElementsByTagNameNS("*", "Page")[0];
  const scaleX = canvas.width / (Number(page?.getAttribute("WIDTH")) || canvas.width);
  const scaleY = canvas.height / (Number(page?.getAttribute("HEIGHT")) || canvas.height);
  return [...alto.getElementsByTagNameNS("*", "TextLine")].map((line) => {
    const strings = [...line.getElementsByTagNameNS("*", "String")];
    const [x, y, w, h] = ["HPOS", "VPOS", "WIDTH", "HEIGHT"].map((name) => Number(line.getAttribute(name)) || 0);
    const shape = [...line.children].find((child) => child.localName === "Shape");
    const points = shape?.getElementsByTagNameNS("*", "Polygon")[0]?.getAttribute("POINTS");
    const numbers = points
      ? points.trim().split(/[\s,]+/).map(Number)
      : [x, y, x + w, y, x + w, y + h, x, y + h];
    const outline = [];
    for (let i = 0; i + 1 < numbers.length; i += 2) outline.push([numbers[i] * scaleX, numbers[i + 1] * scaleY]);
    return { text: strings.map((s) => s.getAttribute("CONTENT")).join(" ").trim(), outline };
  }).filter((line) => line.text);
}

/** The lines as one W3C annotation page. */
function annotationPage(canvas, lines) {
  const items = lines.map(({ text, outline }, i) => {
    const path = `M${outline.map((point) => point.join(",")).join("L")}Z`;
    const svg = `<svg xmlns="http://www.w3.org/2000/svg"><path d="${path}" fill="none" stroke="#1967d2" stroke-width="2"/></svg>`;
    return {
      id: `${canvas.id}#line-${i + 1}`,
      type: "Annotation",
      motivation: "supplementing",
      body: { type: "TextualBody", value: text, format: "text/plain" },
      target: { source: canvas.id, selector: { type: "SvgSelector", value: svg } },
    };
  });
  return { id: `${canvas.id}#text`, type: "AnnotationPage", items };
}

/** A label's first value, whatever its language. */
function text(label, otherwise) {
  return Object.values(label ?? {})[0]?.[0] ?? otherwise;
}

async function fetched(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url} was answered with ${answer.status}`);
  return answer;
}

function show(canvas, lines, select) {
  list.replaceChildren(...lines.map((line, i) => {
    const item = document.createElement("li");
    item.textContent = line.text;
    item.tabIndex = 0;
    item.dataset.annotation = `${canvas.id}#line-${i + 1}`;
    item.addEventListener("click", () => select(item.dataset.annotation));
    item.addEventListener("keydown", (event) => event.key === "Enter" && select(item.dataset.annotation));
    return item;
  }));
  note.textContent = lines.length ? "" : "No text was found on this page.";
}

async function open() {
  const manifestUrl = new URL(parameters.get("manifest") ?? "", location.href).href;
  const manifest = await (await fetched(manifestUrl)).json();
  const canvases = new Map(manifest.items.map((canvas) => [canvas.id, canvas]));
  const first = manifest.items[Math.max(1, Number(parameters.get("page")) || 1) - 1] ?? manifest.items[0];
  const viewer = Mirador.viewer({
    id: "viewer",
    selectedTheme: "light",
    windows: [{ id: WINDOW, manifestId: manifestUrl, canvasId: first.id }],
    window: {
      allowClose: false,
      allowMaximize: false,
      forceDrawAnnotations: true,
      highlightAllAnnotations: true,
      sideBarOpenByDefault: false,
    },
    workspace: { showZoomControls: true, type: "single" },
    workspaceControlPanel: { enabled: false },
    annotations: { filteredMotivations: ["supplementing"] },
    theme: { palette: { annotations: { selected: { strokeStyle: "#d93025", globalAlpha: 1 } } } },
  });
  const store = viewer.store;
  const select = (annotation) => store.dispatch(Mirador.selectAnnotation(WINDOW, annotation));

  let shown = null;
  const follow = async () => {
    const state = store.getState().windows[WINDOW];
    for (const item of list.children) {
      item.setAttribute("aria-current", String(item.dataset.annotation === state?.selectedAnnotationId));
    }
    const canvas = canvases.get(state?.canvasId);
    if (!canvas || shown === canvas.id) return;
    shown = canvas.id;
    title.textContent = text(canvas.label, canvas.id);
    list.replaceChildren();
    note.textContent = "Reading the text …";
    try {
      const alto = canvas.seeAlso?.find((other) => other.format === ALTO);
      if (!alto) throw new Error("the page has no text file");
      const xml = new DOMParser().parseFromString(await (await fetched(alto.id)).text(), "application/xml");
      if (shown !== canvas.id) return;
      const lines = linesOf(xml, canvas);
      const page = annotationPage(canvas, lines);
      store.dispatch(Mirador.receiveAnnotation(canvas.id, page.id, page));
      show(canvas, lines, select);
    } catch (error) {
      if (shown === canvas.id) note.textContent = `The text cannot be shown: ${error.message}`;
    }
  };
  store.subscribe(follow);
  await follow();
}

open().catch((error) => {
  title.textContent = "The volume cannot be shown";
  note.textContent = `${error.message}. A volume appears here once its first pages are published.`;
});
