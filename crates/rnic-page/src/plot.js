// Draws the charts of a page: each figure with class `plot` has its data as JSON (see plot.rs).
"use strict";
(() => {
  const COLOURS = 8;
  const SHOWN_AT_FIRST = 5;
  const LISTED = 300;
  const charts = [];
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const make = (parent, tag, text, attributes = {}) => {
    const element = parent.appendChild(document.createElement(tag));
    element.textContent = text;
    Object.assign(element, attributes);
    return element;
  };

  // A zoom in one chart applies to all; the flag stops the echo.
  let isZooming = false;
  const zoomAll = (from, min, max) => {
    if (isZooming) return;
    isZooming = true;
    for (const chart of charts) if (chart.plot && chart.plot !== from) chart.plot.setScale("x", { min, max });
    isZooming = false;
  };

  const aligned = ([, first, values], count) => {
    const all = new Array(count).fill(null);
    for (let index = 0; index < values.length; index++) all[first + index] = values[index];
    return all;
  };

  const peak = ([, , values]) => {
    let most = -Infinity;
    for (const value of values) if (value !== null && value > most) most = value;
    return most;
  };

  const short = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    for (const [scale, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (size >= scale) return +(value / scale).toPrecision(4) + " " + unit;
    return String(+value.toPrecision(4));
  };

  class Chart {
    constructor(figure) {
      this.data = JSON.parse(figure.querySelector("script").textContent);
      const controls = make(figure, "div", "", { className: "controls" });
      this.choice = make(controls, "select", "", { ariaLabel: "Quantity" });
      this.data.quantities.forEach((quantity, index) =>
        make(this.choice, "option", `${quantity.name} (${quantity.unit})`, { value: index }));
      this.filter = make(controls, "input", "", { type: "search", placeholder: "filter series", ariaLabel: "Filter series" });
      const reset = make(controls, "button", "whole run", { type: "button" });
      this.about = make(figure, "p", "", { className: "about" });
      this.place = make(figure, "div", "");
      this.list = make(figure, "div", "", { className: "series" });
      this.choice.onchange = () => this.choose();
      this.filter.oninput = () => this.fill();
      reset.onclick = () => {
        const { times } = this.data;
        zoomAll(null, times[0], times[times.length - 1]);
      };
      this.choose();
    }

    choose() {
      this.quantity = this.data.quantities[this.choice.value];
      this.about.textContent = this.quantity.about;
      this.order = this.quantity.series.map((series, index) => [peak(series), index]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
      const first = this.data.shown === undefined ? this.order.slice(0, SHOWN_AT_FIRST).map(([, index]) => index)
        : [...this.quantity.series.keys()].slice(0, this.data.shown);
      this.shown = new Map(first.map((index, place) => [index, place]));
      this.fill();
      this.draw();
    }

    fill() {
      const wanted = this.filter.value.toLowerCase();
      const found = this.order.filter(([, index]) => this.quantity.series[index][0].toLowerCase().includes(wanted));
      this.list.textContent = "";
      for (const [most, index] of found.slice(0, LISTED)) {
        const label = make(this.list, "label", "");
        const box = make(label, "input", "", { type: "checkbox", checked: this.shown.has(index) });
        make(label, "span", `${this.quantity.series[index][0]} (max ${short(most)})`);
        box.onchange = () => {
          if (box.checked) this.shown.set(index, this.free());
          else this.shown.delete(index);
          this.draw();
        };
      }
      if (found.length > LISTED) make(this.list, "span", `and ${found.length - LISTED} more: filter to see them`);
    }

    free() {
      const used = new Set(this.shown.values());
      let place = 0;
      while (used.has(place)) place++;
      return place;
    }

    draw() {
      const { times, x } = this.data;
      const zoom = this.plot && { min: this.plot.scales.x.min, max: this.plot.scales.x.max };
      const series = [...this.shown].sort((a, b) => a[1] - b[1]);
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule"), width: 1 } };
      const number = (_, values) => values.map(short);
      const options = {
        width: this.place.clientWidth,
        height: 280,
        scales: { x: { time: false }, y: { range: (_, min, max) => [Math.min(0, min ?? 0), max > 0 ? max * 1.05 : 1] } },
        axes: [{ ...axis, label: x, labelSize: 20, values: number }, { ...axis, size: 70, label: this.quantity.unit, labelSize: 20, values: number }],
        series: [{ label: x, value: (_, value) => short(value) }, ...series.map(([index, place]) => ({
          label: this.quantity.series[index][0],
          stroke: colour(`--c${place % COLOURS}`),
          dash: place < COLOURS ? undefined : [6, 4],
          width: 1.5,
          points: { show: false },
          value: (_, value) => short(value),
        }))],
        cursor: { sync: { key: "time" }, drag: { x: true, y: false } },
        hooks: { setScale: [(plot, key) => {
          if (key === "x" && plot === this.plot) zoomAll(plot, plot.scales.x.min, plot.scales.x.max);
        }] },
      };
      const values = series.map(([index]) => aligned(this.quantity.series[index], times.length));
      this.plot?.destroy();
      this.plot = new uPlot(options, [times, ...values], this.place);
      if (zoom && zoom.min !== null) this.plot.setScale("x", zoom);
    }
  }

  document.querySelectorAll("figure.plot").forEach((figure) => charts.push(new Chart(figure)));
  addEventListener("resize", () => charts.forEach((chart) =>
    chart.plot.setSize({ width: chart.place.clientWidth, height: 280 })));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.draw()));
})();
