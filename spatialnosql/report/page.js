// Unpacks the library, draws every figure from the values beside it, and keeps light, dark, width and paper in step.
(() => {
  "use strict";
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  const INK = { light: "#1d2733", dark: "#e4e9ef" };
  const SOFT = { light: "#5b6878", dark: "#9aa7b6" };
  const GRID = { light: "#e6eaef", dark: "#27313c" };
  const CARD = { light: "#ffffff", dark: "#171e26" };
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const NARROW = 560;
  let chosen = null; // by the button; else what the system prefers
  let printing = false;
  let drawn = [];

  const theme = () => (printing ? "light" : chosen || (prefersDark.matches ? "dark" : "light"));

  function axis(own, mode) {
    const title = own.title ? { ...own.title, standoff: 8, font: { color: SOFT[mode], size: 12 } } : undefined;
    return {
      gridcolor: GRID[mode], zerolinecolor: GRID[mode], linecolor: GRID[mode], tickfont: { color: SOFT[mode], size: 11 },
      automargin: true, ...own, ...(title ? { title } : {}),
    };
  }

  const isNarrow = (width) => width < NARROW;
  const frame = (figure, width) => (isNarrow(width) && figure.values.narrow) || figure.values;

  // On maps the legend is in columns, so that it keeps clear of the buttons.
  const legendColumns = (width) => (isNarrow(width) ? 2 : 6);
  function legendRows(figure, width) {
    const shown = figure.values.data.filter((trace) => trace.name && trace.showlegend !== false && trace.type !== "heatmap");
    const heat = figure.values.data.filter((trace) => trace.type === "heatmap" && trace.showlegend);
    return Math.max(Math.ceil((shown.length + heat.length) / legendColumns(width)), 1);
  }

  // A map is as high as its shape asks for at this width, other figures as high as they say.
  function height(figure, width) {
    if (figure.values.ratio) {
      const inner = Math.max(width - 90, 200);
      const inside = Math.min(Math.max(inner * frame(figure, width).ratio, 200), 680);
      return Math.round(inside + figure.below + 22 * (legendRows(figure, width) - 1));
    }
    return figure.values.height || 320;
  }

  // Paper is known before it is laid out: A4 or letter, upright.
  function room(figure) {
    return printing ? (figure.place.closest(".pair") ? 335 : 690) : figure.place.clientWidth;
  }

  function range(figure, width, side) {
    const own = frame(figure, width);
    return own !== figure.values ? { range: own[side].slice() } : {};
  }

  // The scale of a map lies below it, over its whole width on a phone.
  function traces(figure) {
    const width = room(figure);
    const narrow = isNarrow(width);
    return figure.values.data.map((trace) => {
      if (!trace.marker || !trace.marker.colorbar) return trace;
      const inside = height(figure, width) - figure.below - 22 * (legendRows(figure, width) - 1);
      const colorbar = { ...trace.marker.colorbar, y: -34 / inside, len: narrow ? 1 : trace.marker.colorbar.len };
      return { ...trace, marker: { ...trace.marker, colorbar } };
    });
  }

  function layout(figure) {
    const mode = theme();
    const width = room(figure);
    const own = figure.values.layout;
    const font = { family: FONT, size: 12, color: INK[mode] };
    const isMap = Boolean(figure.values.ratio);
    const legend = {
      orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", font: { color: INK[mode], size: 12 },
      bgcolor: "rgba(0,0,0,0)", ...(own.legend || {}),
      ...(isMap ? { entrywidthmode: "fraction", entrywidth: 0.94 / legendColumns(width) } : {}),
    };
    const made = {
      ...own, font, legend, width, height: height(figure, width), autosize: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: isMap ? 44 : 52, r: isMap ? 42 : 12, t: own.showlegend === false ? 26 : 44, b: 40, pad: 2 },
      xaxis: axis({ ...own.xaxis, ...(isNarrow(width) && isMap ? { nticks: 4 } : {}), ...range(figure, width, "x") }, mode),
      yaxis: axis({ ...own.yaxis, ...range(figure, width, "y") }, mode),
      hoverlabel: {
        bgcolor: CARD[mode], bordercolor: GRID[mode], font: { family: FONT, size: 13, color: INK[mode] }, align: "left",
      },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: SOFT[mode], activecolor: INK[mode], orientation: "v" },
    };
    // A finger on a map scrolls the page; the buttons zoom.
    if (isMap && touch) made.dragmode = false;
    return made;
  }

  const config = (isMap) => ({
    displaylogo: false, responsive: false, displayModeBar: isMap ? true : false, scrollZoom: false,
    modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d"], ["pan2d", "zoom2d"], ["toImage"]],
    showTips: false,
  });

  function apply() {
    root.dataset.theme = theme();
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    for (const figure of drawn) {
      // What a reader has zoomed to stays.
      const before = figure.place.layout;
      const next = layout(figure);
      if (before && figure.values.ratio && figure.moved) {
        next.xaxis.range = before.xaxis.range.slice();
        next.yaxis.range = before.yaxis.range.slice();
      }
      Plotly.react(figure.place, traces(figure), next, config(Boolean(figure.values.ratio)));
    }
  }

  async function unpacked() {
    const packed = atob(document.getElementById("library").textContent);
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  async function start() {
    root.dataset.theme = theme();
    const script = document.createElement("script");
    script.textContent = await unpacked();
    document.head.append(script);
    for (const element of document.querySelectorAll("figure.plot")) {
      const values = JSON.parse(element.querySelector("script").textContent);
      const hasBar = values.data.some((trace) => trace.marker && trace.marker.colorbar);
      drawn.push({ place: element.querySelector(".drawing"), values, below: hasBar ? 150 : 84, moved: false });
    }
    for (const figure of drawn) {
      await Plotly.newPlot(figure.place, traces(figure), layout(figure), config(Boolean(figure.values.ratio)));
      figure.place.on("plotly_relayout", (change) => {
        if ("xaxis.range[0]" in change || "xaxis.range" in change) figure.moved = true;
      });
    }
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    root.dataset.ready = "yes";
  }

  button.addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    apply();
  });
  prefersDark.addEventListener("change", apply);
  let waiting = 0;
  let widthBefore = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === widthBefore) return; // a phone's address bar coming and going
    widthBefore = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(apply, 120);
  });
  addEventListener("beforeprint", () => { printing = true; apply(); });
  addEventListener("afterprint", () => { printing = false; apply(); });
  start().catch((error) => {
    const trouble = document.getElementById("trouble");
    trouble.textContent = `The figures could not be drawn (${error.message}); the tables are complete.`;
    trouble.hidden = false;
    root.dataset.ready = "failed";
  });
})();
