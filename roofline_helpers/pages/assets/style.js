// The style sheet of every element: colours for light and dark, fields, buttons, tables.
const STYLE = `
  :host { display: block; margin-block: 1rem; font: inherit;
    --ink: #1f1f1f; --muted: #595959; --ground: #f5f7f9; --field: #fff; --line: #6e7781; --soft: #d0d7de;
    --accent: #00578a; --onaccent: #fff; --good: #1a6331; --bad: #a4161a; }
  :host([hidden]) { display: none; }
  :host([data-look=dark]) { color-scheme: dark;
    --ink: #ececec; --muted: #b4b4b4; --ground: #1e2329; --field: #12161a; --line: #8b949e; --soft: #3d444d;
    --accent: #8cc8f5; --onaccent: #10202c; --good: #7fd495; --bad: #ffa8a3; }
  :host([data-look=light]) { color-scheme: light; }
  * { box-sizing: border-box; }
  [hidden] { display: none !important; }
  .card { color: var(--ink); background: var(--ground); border: 1px solid var(--soft); border-left: 4px solid var(--accent);
    border-radius: 4px; padding: .9rem 1rem; line-height: 1.5; overflow-wrap: anywhere; }
  .card > :first-child, .question > :first-child { margin-top: 0; }
  p { margin: .5rem 0 0; }
  fieldset { border: 0; margin: 0; padding: 0; min-width: 0; }
  legend { padding: 0; margin-bottom: .4rem; }
  .option { display: flex; gap: .6rem; align-items: baseline; padding: .3rem .4rem; border-radius: 4px; cursor: pointer; }
  .option input { flex: none; width: 1.1em; height: 1.1em; margin: 0; transform: translateY(.15em); accent-color: var(--accent); }
  .field { display: inline-flex; flex-direction: column; gap: .25rem; max-width: 100%; }
  .question > .field { display: flex; }
  .line { display: flex; gap: .5rem; }
  .field .line { align-items: center; flex-wrap: wrap; }
  .unit, .muted { color: var(--muted); }
  input[type=text], select { font: inherit; color: var(--ink); background: var(--field); border: 1px solid var(--line);
    border-radius: 4px; padding: .3rem .5rem; min-height: 2.2rem; max-width: 100%; }
  input[aria-invalid] { border-color: var(--bad); border-width: 2px; }
  button { font: inherit; font-weight: 600; min-height: 2.2rem; padding: .3rem .9rem; border-radius: 4px; cursor: pointer;
    border: 1px solid var(--accent); background: var(--accent); color: var(--onaccent); }
  button.quiet { background: transparent; color: var(--accent); }
  .buttons { display: flex; flex-wrap: wrap; align-items: start; gap: .6rem; margin-top: .7rem; }
  .buttons summary { padding: .3rem .4rem; font-weight: 600; color: var(--accent); } .buttons details { margin: 0; } .buttons [open] { flex-basis: 100%; }
  :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
  .good { color: var(--good); } .bad { color: var(--bad); }
  .field > .bad { font-size: .9em; } .field > .bad:empty { display: none; }
  .mark { flex: none; font-weight: 700; }
  .sheet { margin: 0; padding: 0; list-style: none; } .sheet > li + li { margin-top: 1.2rem; }
  .say { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
  .scroll { overflow-x: auto; container-type: inline-size; }
  .scroll[tabindex] { background: linear-gradient(to right, var(--ground) 40%, transparent) left / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--ground) 40%, transparent) right / 2.5rem 100% no-repeat local,
    linear-gradient(to right, var(--muted), transparent) left / .6rem 100% no-repeat scroll,
    linear-gradient(to left, var(--muted), transparent) right / .6rem 100% no-repeat scroll; }
  table { border-collapse: collapse; font-size: .92em; overflow-wrap: normal; } caption { text-align: left; }
  th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--soft); }
  .answers td:first-child { min-width: 9rem; }
  @container (max-width: 30rem) {
    .answers thead { display: none; } .answers :is(tbody, tr, td) { display: block; } .answers tr { border-bottom: 1px solid var(--soft); padding-block: .4rem; }
    .answers td { border: 0; padding: 0 0 .2rem; } .answers td:empty { display: none; }
    .answers td + td[data-name]:not([data-name=""])::before { content: attr(data-name) ": "; color: var(--muted); }
    .answers td:first-child { font-weight: 600; }
  }
  textarea { width: 100%; font: .85em monospace; color: var(--ink); background: var(--field); border: 1px solid var(--line); }
  details { margin-top: .6rem; } summary { cursor: pointer; }
  @media (pointer: coarse) {
    button, select, input[type=text], summary { min-height: 44px; } .option { padding-block: .65rem; min-height: 44px; }
  }
  @media (prefers-reduced-motion: reduce) { * { transition: none !important; animation: none !important; } }
  @media print { button { display: none; } }`;
