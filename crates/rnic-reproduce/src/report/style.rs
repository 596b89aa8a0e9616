//! How the page looks: light, narrow palette, prints well.

/// The style sheet.
pub(super) const CSS: &str = r#"
:root { --ink: #22262b; --soft: #505760; --line: #dce0e5; --wash: #f5f7f9; --good: #0f6b3c; --bad: #b3202c; --odd: #7a5200; }
* { box-sizing: border-box; }
html { font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Liberation Sans", sans-serif; color: var(--ink); background: #fff; }
body { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
svg text { font-family: system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Liberation Sans", sans-serif; font-variant-numeric: tabular-nums; }
.kicker { color: var(--soft); font-size: .85rem; letter-spacing: .02em; margin: 0; }
h1 { font-size: 2rem; line-height: 1.2; font-weight: 650; letter-spacing: -.01em; margin: .2rem 0 .8rem; text-wrap: balance; }
h2 { font-size: 1.4rem; line-height: 1.25; font-weight: 650; margin: .1rem 0 .4rem; text-wrap: balance; }
h3 { font-size: .95rem; font-weight: 650; margin: 1.4rem 0 .3rem; }
p { margin: 0 0 .7rem; max-width: 46rem; }
a { color: inherit; text-decoration-color: #9aa3ad; text-underline-offset: 2px; }
code { font: .85em/1.4 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; background: var(--wash); padding: .1em .35em; border-radius: 3px; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; line-height: 1.4; font-variant-numeric: tabular-nums; margin: .6rem 0 1rem; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: .78rem; border-bottom: 1.5px solid var(--ink); padding: .3rem .8rem .3rem 0; vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); padding: .5rem .8rem .5rem 0; vertical-align: top; }
th:last-child, td:last-child { padding-right: 0; }
td.row, td.id { white-space: nowrap; }
td.found { min-width: 9.5rem; }
td.found strong { font-size: 1rem; }
td small, .small { color: var(--soft); font-size: .8rem; line-height: 1.4; display: block; }
.verdict { font-weight: 650; white-space: nowrap; }
.verdict::before { display: inline-block; width: 1.15em; }
.inside { color: var(--good); } .inside::before { content: "\2713"; }
.outside { color: var(--bad); } .outside::before { content: "\2717"; }
.unjudged { color: var(--bad); } .unjudged::before { content: "?"; }
.left-out { color: var(--odd); font-weight: 500; } .left-out::before { content: "\2013"; }
.tally { display: flex; flex-wrap: wrap; gap: 0 2.5rem; margin: 1.2rem 0; padding: .9rem 0; border-top: 1.5px solid var(--ink); border-bottom: 1px solid var(--line); }
.tally div { min-width: 6.5rem; } .tally b { display: block; font-size: 1.7rem; line-height: 1.15; font-weight: 650; font-variant-numeric: tabular-nums; }
.tally span { color: var(--soft); font-size: .85rem; }
section { border-top: 1.5px solid var(--ink); margin-top: 3rem; padding-top: 1rem; }
figure { margin: 1rem 0 1.2rem; break-inside: avoid; }
figcaption { margin-bottom: .3rem; font-size: .92rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.3rem; font-size: .85rem; margin: .2rem 0 .5rem; }
.legend span { display: inline-flex; align-items: center; gap: .4rem; }
.panels { display: flex; flex-wrap: wrap; gap: .6rem 18px; }
.panel { max-width: 100%; break-inside: avoid; } .panel svg { width: 100%; height: auto; display: block; }
.panel-title { font-size: .85rem; color: var(--soft); margin: 0; }
.nothing { color: var(--bad); font-size: .85rem; }
.band { display: block; margin: .15rem 0 .1rem; }
ul { padding-left: 1.1rem; margin: .2rem 0 .8rem; max-width: 52rem; font-size: .9rem; } li { margin-bottom: .25rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; font-size: .85rem; margin: .4rem 0; } dt { color: var(--soft); } dd { margin: 0; }
footer { border-top: 1px solid var(--line); margin-top: 3rem; padding-top: .8rem; color: var(--soft); font-size: .85rem; }
@media print { @page { margin: 14mm; } html { font-size: 11px; } body { max-width: none; padding: 0; } section { break-before: page; margin-top: 0; } tr { break-inside: avoid; } a { text-decoration: none; } * { print-color-adjust: exact; } }
"#;
