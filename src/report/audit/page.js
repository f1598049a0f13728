// Draws the audit that the page carries. Whatever comes out of it is set as text, never as markup, and nothing is asked
// of the network. What a table or the map shows is bounded, whatever the size of the cluster.

window.addEventListener('error', ({ message }) => {
  const broken = document.getElementById('broken');
  broken.textContent = `The page could not be drawn (${message}). Everything it holds is in gpufence audit --output json.`;
  broken.hidden = false;
});

const PAGE_SIZE = 50;
/** The most rows of a long list that are printed; all findings are. */
const PRINTED = 2000;
const SEVERITIES = ['high', 'medium', 'low', 'info'];
const CLASSES = ['ordinary', 'gpu-workload', 'platform', 'daemon-set'];
const CLASS_NAMES = {
  'gpu-workload': 'GPU workload', 'daemon-set': 'DaemonSet', platform: 'Platform', ordinary: 'Ordinary',
};
const collator = new Intl.Collator('en', { numeric: true });
const count = new Intl.NumberFormat('en');
/** Whether the page is being printed: then everything that the filters leave is there, on one page each. */
let onPaper = false;

const byId = (id) => document.getElementById(id);

/** Text with what would turn the direction of writing around replaced, and control characters but line ends. */
const visible = (text) =>
  String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');

/** An element. Children are elements or text; what is null or false is left out. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? '' : visible(value));
  }
  const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...kept.map((child) => (child instanceof Node ? child : visible(child))));
  return element;
}

const plural = (number, one, many = `${one}s`) => `${count.format(number)} ${number === 1 ? one : many}`;
const sum = (values) => values.reduce((all, value) => all + value, 0);
const badge = (kind, text) => make('span', { class: `badge ${kind}` }, text);
const severityBadge = (severity) => badge(severity, severity);

/** An object as a person names it. */
function nameOf(object) {
  if (!object) return '';
  return `${object.kind} ${object.namespace ? `${object.namespace}/` : ''}${object.name}`;
}

/** Prose in which `code` stands between backticks; lines that are commands or YAML stand by themselves. */
function prose(text) {
  const lines = String(text ?? '').split('\n');
  const isCode = (line, at) => /^\s*(kubectl|gpufence|helm) /.test(line)
    || (lines.length > 1 && /^\s*(- )?[\w./-]+:( |$)/.test(line) && (at > 0 || !line.endsWith(':')));
  const parts = [];
  lines.forEach((line, at) => {
    if (isCode(line, at)) {
      const last = parts.at(-1);
      if (last?.code) last.code.push(line);
      else parts.push({ code: [line] });
    } else if (line.trim()) {
      parts.push({ line });
    }
  });
  return parts.map(({ code, line }) => (code
    ? make('pre', {}, code.join('\n'))
    : make('span', { class: 'line' }, line.split('`').map((part, at) => (at % 2 ? make('code', {}, part) : part)))));
}

const showCpu = (milli) => `${count.format(Math.round(milli / 10) / 100)}`;
function showBytes(bytes) {
  const units = ['B', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi'];
  let unit = 0;
  let amount = bytes;
  while (amount >= 1024 && unit < units.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${count.format(Math.round(amount * 10) / 10)} ${units[unit]}`;
}

/** What is measured of a node beside GPUs. */
const AMOUNTS = [
  { key: 'cpuMilli', name: 'CPU', word: 'cpu', show: showCpu },
  { key: 'memoryBytes', name: 'Memory', word: 'memory', show: showBytes },
  { key: 'pods', name: 'Pods', word: 'pods', show: (number) => count.format(number) },
  { key: 'ephemeralStorageBytes', name: 'Disk', word: 'ephemeral-storage', show: showBytes },
];

function showRequests(amounts) {
  const parts = AMOUNTS.filter(({ key }) => key !== 'pods' && amounts[key] > 0)
    .map(({ key, name, show }) => `${show(amounts[key])} ${name === 'CPU' ? 'CPU' : name.toLowerCase()}`);
  const extended = Object.entries(amounts.extended ?? {}).map(([name, number]) => `${number} ${name}`);
  return [...extended, ...parts].join(', ') || 'nothing';
}

/**
 * A table that its headings sort and that shows one page of its rows. A column is
 * `{ key, name, value(row): string | number, cell(row): content, wide }`.
 */
class Table {
  constructor(host, { name, columns, sort, size = PAGE_SIZE, printed = PRINTED, changed = () => {} }) {
    Object.assign(this, { name, columns, size, printed, changed, sort, page: 0, rows: [], order: null, kept: [] });
    const heads = columns.map((column) => make('th', { scope: 'col', role: 'columnheader', class: `of-${column.key}` },
      make('button', { type: 'button', click: () => this.sortBy(column.key) }, column.name)));
    this.heads = heads;
    this.body = make('tbody', { role: 'rowgroup' });
    this.pager = make('div', { class: 'pager controls' });
    this.left = make('p', { class: 'count left', hidden: true });
    host.replaceChildren(
      make('table', { role: 'table', 'aria-label': name },
        make('thead', { role: 'rowgroup' }, make('tr', { role: 'row' }, heads)), this.body),
      this.pager, this.left);
  }

  sortBy(key) {
    this.sort = { key, down: this.sort?.key === key ? !this.sort.down : false };
    this.page = 0;
    this.show(this.rows, this.keep);
    this.changed();
  }

  /** Shows the rows that are to be kept. The same rows are sorted once, however often others of them are kept. */
  show(rows, keep = () => true) {
    const order = this.sort ? `${this.sort.key} ${this.sort.down}` : '';
    if (rows !== this.rows || order !== this.order) this.ordered = this.sorted(rows);
    Object.assign(this, { rows, keep, order, kept: this.ordered.filter(keep) });
    this.draw();
  }

  /** The rows in their order. What is equal stays in the audit's own. */
  sorted(rows) {
    const column = this.columns.find(({ key }) => key === this.sort?.key);
    if (!column) return rows;
    const way = this.sort.down ? -1 : 1;
    const compare = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(a, b));
    const keyed = rows.map((row) => [column.value(row), row]);
    return keyed.sort((a, b) => way * compare(a[0], b[0])).map(([, row]) => row);
  }

  draw() {
    const pages = Math.max(1, Math.ceil(this.kept.length / this.size));
    this.page = Math.min(Math.max(this.page, 0), pages - 1);
    const from = onPaper ? 0 : this.page * this.size;
    const to = onPaper ? Math.min(this.kept.length, this.printed) : from + this.size;
    this.heads.forEach((head, at) => {
      const is = this.columns[at].key === this.sort?.key;
      if (is) head.setAttribute('aria-sort', this.sort.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    const shown = this.kept.slice(from, to);
    this.body.replaceChildren(...shown.map((row) => make('tr', { role: 'row' }, this.columns.map((column) => {
      const content = column.cell ? column.cell(row) : column.value(row);
      const empty = content === '' || (Array.isArray(content) && content.length === 0);
      return make('td', { role: 'cell', class: `of-${column.key}${empty ? ' empty' : ''}`, 'data-name': column.name },
        make('div', {}, content));
    }))));
    this.left.hidden = !onPaper || to >= this.kept.length;
    this.left.textContent = `And ${count.format(this.kept.length - to)} more that are not printed.`;
    this.drawPager(pages, from);
  }

  drawPager(pages, from) {
    this.pager.hidden = pages === 1;
    const turn = (name, page, possible) => make('button', {
      type: 'button', disabled: !possible, 'aria-label': `${name} page of ${this.name}`,
      click: () => {
        this.page = page;
        this.draw();
        this.changed();
        // Drawn anew, so that the focus would be lost; a button at an end takes none.
        const again = this.pager.querySelector(`[data-turn="${name}"]:enabled`) ?? this.pager.querySelector('button:enabled');
        again?.focus();
      }, 'data-turn': name,
    }, name);
    const until = Math.min(from + this.size, this.kept.length);
    this.pager.replaceChildren(
      turn('First', 0, this.page > 0),
      turn('Previous', this.page - 1, this.page > 0),
      make('span', {}, `${count.format(from + 1)} to ${count.format(until)} of ${count.format(this.kept.length)}`),
      turn('Next', this.page + 1, this.page < pages - 1),
      turn('Last', pages - 1, this.page < pages - 1));
  }
}

// What a link to the page holds behind its #, so that another sees the same.

const EMPTY = {
  text: '', severity: '', rule: '', namespace: '', pool: '', sort: '-severity', page: '',
  nodes: '', ordinary: '', blocked: '', drifted: '', node: '',
};
const state = { ...EMPTY };

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(EMPTY)) state[key] = given.get(key) ?? EMPTY[key];
}

function writeState() {
  const kept = Object.entries(state).filter(([key, value]) => value !== EMPTY[key]);
  const hash = new URLSearchParams(kept).toString();
  try {
    history.replaceState(null, '', hash ? `#${hash}` : location.href.split('#')[0]);
  } catch {
    // Some browsers allow only so many in half a minute. The next change makes up for it.
  }
}

// === Findings

const severityColumn = {
  key: 'severity', name: 'Severity', value: ({ severity }) => -SEVERITIES.indexOf(severity),
  cell: ({ severity }) => severityBadge(severity),
};

const findingColumns = [
  severityColumn,
  { key: 'rule', name: 'Rule', value: ({ rule }) => rule, cell: ({ rule }) => make('code', {}, rule) },
  { key: 'namespace', name: 'Namespace', value: ({ object }) => object.namespace },
  {
    key: 'object', name: 'Object', value: ({ object }) => `${object.name} ${object.kind}`,
    cell: ({ object, controller }) => [
      make('span', { class: 'kind' }, object.kind), ' ', make('b', {}, object.name),
      controller && make('span', { class: 'line' }, `of ${nameOf(controller)}`),
    ].filter(Boolean),
  },
  { key: 'pool', name: 'Pool', value: ({ pool }) => pool ?? '' },
  {
    key: 'node', name: 'Node', value: ({ node, object }) => node ?? (object.kind === 'Node' ? object.name : ''),
    cell(finding) {
      const name = this.value(finding);
      return nodesByName.has(name) ? nodeButton(name) : name;
    },
  },
  {
    key: 'message', name: 'Finding and what to do', value: ({ message }) => message,
    cell: ({ message, field, action }) => [
      make('p', { class: 'message' }, prose(message)),
      field && make('p', { class: 'field' }, 'at ', make('code', {}, field)),
      action && make('div', { class: 'action' }, make('b', {}, 'Do '), prose(action)),
    ].filter(Boolean),
  },
];

/** All that the filter's text may name of a finding. */
const searched = new Map();
function textOf(finding) {
  if (!searched.has(finding)) {
    const { rule, severity, object, controller, pool, node, field, message, action } = finding;
    const words = [rule, severity, nameOf(object), nameOf(controller), pool, node, field, message, action];
    searched.set(finding, words.filter(Boolean).join('\n').toLowerCase());
  }
  return searched.get(finding);
}

const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

function keepsFinding() {
  const words = wordsOf(state.text);
  return (finding) => (!state.severity || finding.severity === state.severity)
    && (!state.rule || finding.rule === state.rule)
    && (!state.namespace || finding.object.namespace === state.namespace)
    && (!state.pool || finding.pool === state.pool)
    && words.every((word) => textOf(finding).includes(word));
}

/** The values of a select, each with how many findings have it. */
function offer(select, values, order) {
  const counts = new Map();
  for (const value of values) if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  // What a link names may be gone.
  if (state[select.name] && !counts.has(state[select.name])) counts.set(state[select.name], 0);
  const names = [...counts.keys()].sort(order ?? collator.compare);
  const options = names.map((name) => {
    const option = make('option', {}, `${name} (${count.format(counts.get(name))})`);
    // As it is, not as it is shown: it is compared.
    option.value = name;
    return option;
  });
  select.replaceChildren(make('option', { value: '' }, 'All'), ...options);
}

function drawFindings() {
  findings.show(audit.findings, keepsFinding());
  const all = audit.findings.length;
  const kept = findings.kept.length;
  byId('finding-count').textContent = kept === all
    ? plural(all, 'finding')
    : `${count.format(kept)} of ${plural(all, 'finding')}`;
}

/** The controls as the state has them. */
function fillForms() {
  const form = byId('finding-filter').elements;
  const all = audit.findings;
  offer(form.severity, all.map(({ severity }) => severity), (a, b) => SEVERITIES.indexOf(a) - SEVERITIES.indexOf(b));
  offer(form.rule, all.map(({ rule }) => rule));
  offer(form.namespace, all.map(({ object }) => object.namespace));
  offer(form.pool, all.map(({ pool }) => pool));
  for (const key of ['text', 'severity', 'rule', 'namespace', 'pool']) form[key].value = state[key];
  const nodes = byId('node-filter').elements;
  nodes.nodes.value = state.nodes;
  for (const key of ['ordinary', 'blocked', 'drifted']) nodes[key].checked = Boolean(state[key]);
  findings.sort = { key: state.sort.replace(/^-/, ''), down: state.sort.startsWith('-') };
  findings.page = (Number.parseInt(state.page, 10) || 1) - 1;
}

function filterFindings(changes) {
  Object.assign(state, changes);
  findings.page = 0;
  state.page = '';
  drawFindings();
  writeState();
}
