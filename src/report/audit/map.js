// === The map of nodes, and what a click on one shows

/** The most tiles that are there at first, and the most of a group; a button adds more. */
const TILES = 240;
const TILES_OF_GROUP = 60;
const PRINTED_TILES = 1000;
/** The most groups, which may be as many as nodes. */
const GROUPS = 60;
/** Up to so many GPUs of a node are drawn one by one. */
const SLOTS = 16;

/** The findings about a node's labels, taints and GPUs, which make it count as drifted. */
const DRIFT = new Set([
  'node-without-taint', 'node-taint-differs', 'node-without-label', 'node-label-differs', 'node-without-gpus',
  'node-group-drift', 'node-mixed-mig', 'node-extra-taint',
]);

const ENTRIES = {
  'node-name': () => ['its creator set ', make('code', {}, 'spec.nodeName'), ': no scheduler looked at the taint'],
  'before-taint': ({ taint }) => ['was there before the taint ', make('code', {}, taint), ', or was put there past the scheduler'],
  'no-taint': () => ['the node has no taint that keeps a pod off'],
  tolerates: ({ taint, field, toleration, exact }) => [
    'tolerates ', make('code', {}, taint), exact ? ' exactly, by ' : ' and more, by ', make('code', {}, toleration),
    ' at ', make('code', {}, field)],
};

const ordinaryOn = (node) => node.requested.ordinary.pods;
const findingsOf = (node) => findingsByNode.get(node.name) ?? [];
const isDrifted = (node) => findingsOf(node).some(({ rule, object }) => object.kind === 'Node' && DRIFT.has(rule));

function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) {
    const name = key(item);
    if (name === null) continue;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(item);
  }
  return groups;
}

const nodeButton = (name) => make('button', { type: 'button', class: 'link', click: () => openNode(name) }, name);

/** What is out of the ordinary about a node, in words. */
function marksOf(node) {
  return [
    node.ready !== true && badge('medium', node.ready === false ? 'not ready' : 'readiness unknown'),
    node.unschedulable && badge('medium', 'cordoned'),
    isDrifted(node) && badge('high', 'drifted'),
  ].filter(Boolean);
}

function slots(gpus) {
  const parts = gpuParts(gpus);
  if (sum(parts.map(({ number }) => number)) > SLOTS) return bar(parts, gpus.allocatable);
  return make('span', { class: 'slots', 'aria-hidden': 'true' }, parts.map(({ kind, number }) =>
    Array.from({ length: number }, () => make('span', { class: `slot part ${kind}` }))));
}

const requestedBy = (node, key) => [
  { kind: 'gpu-workload', number: node.requested.gpuWorkload[key] },
  { kind: 'daemon-set', number: node.requested.daemonSet[key] },
  { kind: 'platform', number: node.requested.platform[key] },
  { kind: 'ordinary', number: node.requested.ordinary[key] },
].filter(({ number }) => number > 0);

function amountBar(node, { key, name }) {
  const parts = requestedBy(node, key);
  const whole = node.allocatable[key];
  const share = whole > 0 ? `${Math.round((100 * sum(parts.map(({ number }) => number))) / whole)} %` : '–';
  return make('span', { class: 'amount' }, make('span', { class: 'name' }, name), bar(parts, whole),
    make('span', { class: 'share' }, share));
}

/** The worst severity of what was found about a node, as its place among the severities. */
const worstOf = (node) => Math.min(SEVERITIES.length, ...findingsOf(node).map(({ severity }) => SEVERITIES.indexOf(severity)));

function tile(node) {
  const worst = SEVERITIES[worstOf(node)];
  const ordinary = ordinaryOn(node);
  return make('li', {}, make('button', {
    type: 'button', class: `tile ${worst ?? 'fine'}`, 'aria-haspopup': 'dialog', click: () => openNode(node.name),
  },
  make('span', { class: 'title' }, make('b', {}, node.name), marksOf(node)),
  slots(node.gpus), make('span', { class: 'words' }, gpuWords(node.gpus)),
  AMOUNTS.slice(0, 3).map((amount) => amountBar(node, amount)),
  make('span', { class: 'words' }, [
    ordinary > 0 && plural(ordinary, 'ordinary pod'),
    worst && `${plural(findingsOf(node).length, 'finding')} (${findingsOf(node).length > 1 ? 'worst ' : ''}${worst})`,
  ].filter(Boolean).join(', ') || 'nothing found')));
}

function filteredNodes() {
  const words = wordsOf(state.nodes);
  return audit.nodes.filter((node) =>
    (!state.ordinary || ordinaryOn(node) > 0)
    && (!state.blocked || node.gpus.blocked > 0)
    && (!state.drifted || isDrifted(node))
    && words.every((word) => `${node.name} ${node.group} ${node.pools.join(' ')}`.toLowerCase().includes(word)));
}

/** A list of tiles, of which a button adds more. */
function tilesOf(nodes, first) {
  const list = make('ul', { class: 'tiles' });
  const more = make('button', { type: 'button', class: 'controls more' });
  const add = (number) => {
    const from = list.children.length;
    list.append(...nodes.slice(from, from + number).map(tile));
    const left = nodes.length - list.children.length;
    more.hidden = left === 0;
    more.textContent = `Show ${count.format(Math.min(left, TILES_OF_GROUP))} more of ${plural(left, 'node')}`;
    return list.children[from];
  };
  more.addEventListener('click', () => add(TILES_OF_GROUP)?.querySelector('button').focus());
  add(first);
  const left = nodes.length - list.children.length;
  return [list, more, onPaper && left > 0 && make('p', { class: 'count' }, `And ${plural(left, 'more node')} not printed.`)];
}

function drawMap() {
  const nodes = filteredNodes();
  const all = audit.nodes.length;
  byId('node-count').textContent = nodes.length === all ? plural(all, 'node') : `${count.format(nodes.length)} of ${plural(all, 'node')}`;
  let room = onPaper ? PRINTED_TILES : TILES;
  const place = new Map(audit.pools.map(({ name }, at) => [name, at]));
  const placeOf = ([{ pools }]) => place.get(pools[0]) ?? place.size;
  // Pools as the contract has them; of each group the nodes to look at first.
  const groups = [...groupBy(nodes, (node) => JSON.stringify([node.pools.join(', '), node.group]))]
    .map(([key, members]) => [...JSON.parse(key), members.sort((a, b) => worstOf(a) - worstOf(b))])
    .sort((a, b) => placeOf(a[2]) - placeOf(b[2]) || collator.compare(a[0], b[0]) || collator.compare(a[1], b[1]));
  let pool = null;
  const drawn = groups.slice(0, GROUPS).flatMap(([pools, group, members]) => {
    const gpus = { allocatable: 0, requested: 0, free: 0, blocked: 0, outOfUse: 0 };
    for (const node of members) for (const key of Object.keys(gpus)) gpus[key] += node.gpus[key];
    const first = Math.min(room, onPaper ? PRINTED_TILES : TILES_OF_GROUP, members.length);
    room -= first;
    const title = pools === pool ? null : make('h3', {}, pools ? `Pool ${pools}` : 'No pool');
    pool = pools;
    return [title, make('section', { class: 'group' },
      make('h4', {}, group || 'Nodes of no group'),
      make('p', { class: 'words' }, `${plural(members.length, 'node')}, GPUs: ${gpuWords(gpus)}`),
      tilesOf(members, first))].filter(Boolean);
  });
  const left = groups.length - GROUPS;
  if (left > 0) drawn.push(make('p', { class: 'count' }, `And ${plural(left, 'more group')}: filter by name to see them.`));
  byId('map').replaceChildren(...drawn);
  drawOccupants(nodes);
}

function drawLegend() {
  const entry = (kind, name) => make('li', {}, make('span', { class: `part ${kind}`, 'aria-hidden': 'true' }), name);
  byId('legend').replaceChildren(
    entry('used', 'GPU requested'), entry('free', 'free'), entry('blocked', 'free, but blocked'), entry('out', 'out of use'),
    ...['gpu-workload', 'daemon-set', 'platform', 'ordinary'].map((kind) => entry(kind, CLASS_NAMES[kind])));
}

const occupantColumns = [
  {
    key: 'class', name: 'Class', value: ({ occupant }) => CLASSES.indexOf(occupant.class),
    cell: ({ occupant }) => [make('span', { class: `part ${occupant.class}`, 'aria-hidden': 'true' }), ' ', CLASS_NAMES[occupant.class]],
  },
  {
    key: 'object', name: 'Pod', value: ({ occupant }) => `${occupant.namespace}/${occupant.name}`,
    cell: ({ occupant }) => [
      make('b', {}, `${occupant.namespace}/${occupant.name}`),
      occupant.controller && make('span', { class: 'line' }, `of ${nameOf(occupant.controller)}`),
    ].filter(Boolean),
  },
  { key: 'qos', name: 'QoS', value: ({ occupant }) => occupant.qos },
  { key: 'requests', name: 'Requests', value: ({ occupant }) => occupant.requests.cpuMilli, cell: ({ occupant }) => showRequests(occupant.requests) },
  {
    key: 'entry', name: 'How it got in', value: ({ occupant }) => occupant.entry.how,
    cell: ({ occupant }) => ENTRIES[occupant.entry.how]?.(occupant.entry) ?? occupant.entry.how,
  },
  { key: 'action', name: 'What to do', value: ({ occupant }) => occupant.action, cell: ({ occupant }) => prose(occupant.action) },
];
const nodeColumn = { key: 'node', name: 'Node', value: ({ node }) => node.name, cell: ({ node }) => nodeButton(node.name) };

/** Ordinary pods first: they are who has to go. */
function byClass(rows) {
  const groups = groupBy(rows, ({ occupant }) => occupant.class);
  return CLASSES.flatMap((name) => groups.get(name) ?? []);
}

function drawOccupants(nodes) {
  const kept = new Set(nodes);
  occupants.page = 0;
  occupants.show(allOccupants, ({ node }) => kept.has(node));
  byId('occupant-count').textContent = nodes.length === audit.nodes.length
    ? plural(allOccupants.length, 'pod')
    : `${plural(occupants.kept.length, 'pod')} on the nodes that the filter above leaves`;
}

function openNode(name) {
  const node = nodesByName.get(name);
  if (!node) return;
  const dialog = byId('node');
  const host = make('div', { class: 'table' });
  const found = findingsOf(node);
  dialog.querySelector('.sheet').replaceChildren(
    make('header', {},
      make('div', {}, make('p', { class: 'kind' }, 'Node'), make('h2', { id: 'node-name', tabindex: -1 }, node.name)),
      make('button', { type: 'button', class: 'close', click: () => dialog.close() }, 'Close')),
    make('p', { class: 'marks' }, marksOf(node),
      ` ${node.pools.length ? `Pool ${node.pools.join(', ')}` : 'No pool'}${node.group ? `, ${node.group}` : ''}`),
    make('p', {}, node.taints.length ? ['Taints: ', node.taints.map((taint) => [make('code', {}, taint), ' '])] : 'No taint.'),
    make('h3', {}, 'GPUs'),
    slots(node.gpus),
    make('p', { class: 'words' }, gpuWords(node.gpus)),
    node.gpus.blocked > 0 && make('p', {}, make('b', {}, `${plural(node.gpus.blocked, 'free GPU')} cannot be used`),
      node.blockedBy.length ? `: what is left of ${node.blockedBy.join(', ')} is too little.` : '.'),
    make('ul', { class: 'plain' }, node.resources.map(({ name: resource, capacity, allocatable, requested }) => make('li', {},
      make('code', {}, resource), ` ${requested} of ${allocatable} requested`,
      capacity > allocatable ? `; ${capacity - allocatable} of ${capacity} built in are not offered` : ''))),
    make('h3', {}, 'Requests by class'),
    make('div', { class: 'amounts' }, AMOUNTS.filter(({ key }) => node.allocatable[key] > 0 || requestedBy(node, key).length > 0)
      .map((amount) => amountRow(node, amount))),
    make('h3', {}, plural(found.length, 'finding')),
    make('ul', { class: 'plain found' }, found.map((finding) => make('li', { class: finding.severity },
      make('p', {}, severityBadge(finding.severity), ' ', make('code', {}, finding.rule), ' ',
        finding.object.kind === 'Node' ? '' : nameOf(finding.object)),
      make('p', { class: 'message' }, prose(finding.message)),
      finding.action && make('div', { class: 'action' }, make('b', {}, 'Do '), prose(finding.action))))),
    make('h3', {}, plural(node.occupants.length, 'pod')), host);
  const table = new Table(host, { name: `Pods on ${name}`, columns: occupantColumns, size: 25 });
  table.show(byClass(node.occupants.map((occupant) => ({ node, occupant }))));
  if (!dialog.open) dialog.showModal();
  dialog.querySelector('.sheet').scrollTop = 0;
  byId('node-name').focus();
  state.node = name;
  writeState();
}

function amountRow(node, amount) {
  const { key, name, show } = amount;
  const parts = requestedBy(node, key);
  const words = parts.map(({ kind, number }) => `${CLASS_NAMES[kind]} ${show(number)}`);
  return make('div', {}, amountBar(node, amount),
    make('p', { class: 'words' }, `${words.join(', ') || `no ${name.toLowerCase()} requested`}; of ${show(node.allocatable[key])}`));
}

// === The start

const audit = JSON.parse(byId('audit').textContent);
const nodesByName = new Map(audit.nodes.map((node) => [node.name, node]));
const findingsByNode = groupBy(audit.findings, ({ node, object }) => node ?? (object.kind === 'Node' ? object.name : null));
const allOccupants = byClass(audit.nodes.flatMap((node) => node.occupants.map((occupant) => ({ node, occupant }))));
const tables = [];
const tableIn = (id, options) => {
  const table = new Table(byId(id).querySelector('.table'), options);
  tables.push(table);
  return table;
};
const findings = tableIn('findings', {
  name: 'Findings', columns: findingColumns, printed: Infinity,
  changed() {
    state.sort = `${findings.sort.down ? '-' : ''}${findings.sort.key}`;
    state.page = findings.page ? String(findings.page + 1) : '';
    writeState();
  },
});
const occupants = tableIn('occupants', { name: 'Pods on GPU nodes', columns: [nodeColumn, ...occupantColumns], size: 25 });
const pending = tableIn('pending', { name: 'Pending pods', columns: pendingColumns, size: 25 });
const gaps = tableIn('gaps', {
  name: 'Gaps', columns: [{ key: 'gap', name: 'Not seen, or not read', value: (gap) => gap }], size: 25,
});
const coverage = tableIn('coverage', { name: 'DaemonSets', columns: coverageColumns, size: 25 });

function drawState() {
  fillForms();
  drawMap();
  drawFindings();
}

function drawAll() {
  drawTop();
  drawPools();
  drawLegend();
  const fresh = unseen();
  pending.show(fresh.pending);
  coverage.show(fresh.daemonSets);
  gaps.show(fresh.gaps);
  const sections = {
    pools: audit.pools.length, nodes: audit.nodes.length, findings: audit.findings.length,
    occupants: allOccupants.length, 'what-if': drawWhatIf(),
    pending: fresh.pending.length, coverage: fresh.daemonSets.length, gaps: fresh.gaps.length,
  };
  for (const [id, number] of Object.entries(sections)) byId(id).hidden = number === 0 && id !== 'findings';
  byId('contents').replaceChildren(...Object.entries(sections).filter(([id]) => !byId(id).hidden).map(([id, number]) =>
    make('li', {}, make('button', { type: 'button', click: () => goTo(id) }, byId(`${id}-title`).textContent, ' ',
      make('span', { class: 'tally' }, count.format(number))))));
}

function setPaper(is) {
  if (onPaper === is) return;
  onPaper = is;
  drawMap();
  for (const table of tables) table.draw();
}

byId('finding-filter').addEventListener('input', ({ target }) => filterFindings({ [target.name]: target.value }));
byId('finding-filter').addEventListener('submit', (event) => event.preventDefault());
byId('finding-filter').addEventListener('reset', () => filterFindings({ text: '', severity: '', rule: '', namespace: '', pool: '' }));
byId('node-filter').addEventListener('submit', (event) => event.preventDefault());
byId('node-filter').addEventListener('input', ({ target }) => {
  state[target.name] = target.type === 'checkbox' ? (target.checked ? 'yes' : '') : target.value;
  drawMap();
  writeState();
});
byId('node').addEventListener('close', () => {
  state.node = '';
  writeState();
});
// A click beside the sheet closes it, as Escape does.
byId('node').addEventListener('click', ({ target, currentTarget }) => target === currentTarget && currentTarget.close());
window.addEventListener('hashchange', () => {
  readState();
  drawState();
  if (state.node) openNode(state.node);
  else byId('node').close();
});
const printing = matchMedia('print');
printing.addEventListener('change', () => setPaper(printing.matches));
window.addEventListener('beforeprint', () => setPaper(true));
window.addEventListener('afterprint', () => setPaper(false));

readState();
drawAll();
drawState();
byId('page').hidden = false;
if (state.node) openNode(state.node);
