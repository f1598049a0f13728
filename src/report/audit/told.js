// === What an audit tells beside nodes and findings

/** A link into the page that leaves alone what stands behind its #. */
function goTo(id) {
  const title = byId(`${id}-title`);
  title.scrollIntoView({ behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' });
  title.focus({ preventScroll: true });
}

function verdictOf({ high, medium, low, info }) {
  if (high) return ['high', `${plural(high, 'finding')} of high severity: the fence is open, or GPUs cannot be used.`];
  if (medium) return ['medium', `Nothing urgent. ${plural(medium, 'finding')} cost something, or will.`];
  if (low + info) return ['low', 'The fence holds. What was found does no harm yet.'];
  return ['fine', 'The fence holds: nothing was found.'];
}

/** What only a baseline hides, in words; empty without one. */
function sinceWords({ hidden = 0, resolved = 0 }) {
  if (!audit.baseline) return '';
  const gone = resolved ? `, ${count.format(resolved)} of the baseline ${resolved === 1 ? 'is' : 'are'} gone` : '';
  return `since ${audit.baseline.source} (${plural(hidden, 'known finding')} not shown${gone})`;
}

/** What of DaemonSets, pending pods and gaps is new since the baseline; all of it without one. */
function unseen() {
  if (!audit.baseline) return audit;
  const about = (rule) => new Set(audit.findings.filter((finding) => finding.rule === rule).map(({ object }) => nameOf(object)));
  const [sets, pods, known] = [about('daemonset-left-out'), about('pod-pending'), new Set(audit.baseline.knownGaps)];
  return {
    daemonSets: audit.daemonSets.filter(({ daemonSet }) => sets.has(nameOf(daemonSet))),
    pending: audit.pending.filter(({ object }) => pods.has(nameOf(object))),
    gaps: audit.gaps.filter((gap) => !known.has(gap)),
  };
}

function drawTop() {
  const { summary } = audit;
  byId('source').textContent = visible(audit.source || 'Cluster');
  document.title = `gpufence audit: ${visible(audit.source)}`;
  const taken = new Date(audit.taken);
  const time = Number.isNaN(taken.getTime()) ? audit.taken : `${audit.taken.slice(0, 16).replace('T', ' ')} UTC`;
  byId('facts').replaceChildren(make('time', { datetime: audit.taken }, time), `, contract ${audit.contract ? `${audit.contract}, ` : ''}in mode ${audit.mode}`);
  const [kind, all] = verdictOf(summary.findings);
  const since = sinceWords(summary);
  const words = !since ? all : kind === 'fine' ? `Nothing new ${since}.` : `New ${since}: ${all}`;
  byId('verdict').classList.add(kind);
  byId('verdict').replaceChildren(
    make('p', {}, words, summary.podsUnknown && make('span', { class: 'blind' }, 'The pods are not known: what is free is not known, nor who is on GPU nodes. '), unseen().gaps.length > 0 && make('span', { class: 'blind' }, 'The audit did not see everything: ',
      make('button', { type: 'button', class: 'link', click: () => goTo('gaps') }, plural(unseen().gaps.length, 'gap')), '.')),
    make('ul', { class: 'severities' }, SEVERITIES.map((severity) => make('li', {}, make('button', {
      type: 'button',
      class: severity,
      'aria-label': `Show the ${plural(summary.findings[severity], 'finding')} of severity ${severity}`,
      click: () => {
        byId('finding-filter').elements.severity.value = summary.findings[severity] ? severity : '';
        filterFindings({ severity: summary.findings[severity] ? severity : '' });
        goTo('findings');
      },
    }, make('b', {}, count.format(summary.findings[severity])), ' ', severity)))));
  const pods = summary.podsOnGpuNodes;
  const numbers = [
    ['Nodes', summary.nodes], ['GPU nodes', summary.gpuNodes], ['Drifted', summary.driftedNodes],
    ['Pods', summary.pods], ['GPU workloads', pods.gpuWorkload], ['DaemonSet pods', pods.daemonSet],
    ['Platform pods', pods.platform], ['Ordinary pods', pods.ordinary],
  ];
  byId('numbers').replaceChildren(...numbers.map(([name, number], at) => make('div', {},
    make('dt', {}, at > 3 ? [name, make('span', { class: 'unseen' }, ' on GPU nodes')] : name),
    make('dd', {}, count.format(number)))));
  byId('form').textContent = `${audit.version}. Made by gpufence audit, which only reads.`;
}

/** The parts of GPUs, for a bar: what is free includes what is blocked. */
function gpuParts({ requested, free, blocked, outOfUse }) {
  const usable = Math.max(0, free - blocked);
  return [
    { kind: 'used', number: requested }, { kind: 'blocked', number: blocked },
    { kind: 'free', number: usable }, { kind: 'out', number: outOfUse },
  ].filter(({ number }) => number > 0);
}

/** The same in words, whose numbers add up: `41 free, 4 of them blocked`. */
function gpuTold({ requested, free, blocked, outOfUse }) {
  const among = blocked > 0 ? `, ${count.format(blocked)} of them blocked` : '';
  return [
    { kind: 'used', number: requested, words: `${count.format(requested)} requested` },
    { kind: blocked > 0 && blocked === free ? 'blocked' : 'free', number: free, words: `${count.format(free)} free${among}` },
    { kind: 'out', number: outOfUse, words: `${count.format(outOfUse)} out of use` },
  ].filter(({ number }) => number > 0);
}

const gpuWords = (gpus) => {
  const parts = gpuTold(gpus).map(({ words }) => words);
  return parts.length ? parts.join(', ') : 'no GPU';
};

/** A bar of parts `{ kind, number }` of a whole. Its numbers stand beside it in words. */
function bar(parts, whole) {
  const most = Math.max(whole, sum(parts.map(({ number }) => number)), 1);
  return make('span', { class: 'bar', 'aria-hidden': 'true' }, parts.map(({ kind, number }) => {
    const part = make('span', { class: `part ${kind}` });
    part.style.width = `${(100 * number) / most}%`;
    return part;
  }));
}

function drawPools() {
  byId('pools').querySelector('.pools').replaceChildren(...audit.pools.map((pool) => {
    const { gpus } = pool;
    return make('article', { class: 'pool' },
      make('h3', {}, pool.name),
      make('p', { class: 'big' }, make('b', {}, `${count.format(gpus.requested)} of ${count.format(gpus.allocatable)}`),
        ' GPUs requested'),
      bar(gpuParts(gpus), gpus.allocatable),
      make('ul', { class: 'legend' }, gpuTold(gpus).map(({ kind, words }) => make('li', {},
        make('span', { class: `part ${kind}`, 'aria-hidden': 'true' }), words))),
      make('p', { class: 'more' }, `${plural(pool.nodes, 'node')}, ${plural(pool.ordinaryPods, 'ordinary pod')}. `,
        pool.needs ? `A free GPU counts as blocked where less is left beside it than ${showRequests(pool.needs)}.` : ''));
  }));
}

const pendingColumns = [
  {
    key: 'object', name: 'Pod', value: ({ object }) => `${object.namespace}/${object.name}`,
    cell: ({ object, controller }) => [
      make('b', {}, `${object.namespace}/${object.name}`),
      controller && make('span', { class: 'line' }, `of ${nameOf(controller)}`),
    ].filter(Boolean),
  },
  { key: 'pool', name: 'Pool', value: ({ pool }) => pool ?? '' },
  {
    key: 'causes', name: 'Kept by', value: ({ causes }) => causes.join(', '),
    cell: ({ causes }) => causes.map((cause) => [badge('plain', cause), ' ']),
  },
  {
    key: 'message', name: 'Why, and what to do', value: ({ message }) => message,
    cell: ({ message, scheduler, action }) => [
      make('p', { class: 'message' }, prose(message)),
      scheduler && make('p', { class: 'field' }, 'The scheduler: ', make('q', {}, scheduler)),
      action && make('div', { class: 'action' }, make('b', {}, 'Do '), prose(action)),
    ].filter(Boolean),
  },
];

const coverageColumns = [
  {
    key: 'object', name: 'DaemonSet', value: ({ daemonSet }) => `${daemonSet.namespace}/${daemonSet.name}`,
    cell: ({ daemonSet }) => make('b', {}, `${daemonSet.namespace}/${daemonSet.name}`),
  },
  { key: 'role', name: 'For', value: ({ role, expected }) => role ?? (expected ? '' : 'other nodes') },
  { key: 'selected', name: 'Selects', value: ({ selected }) => selected },
  { key: 'running', name: 'Runs on', value: ({ running }) => running },
  { key: 'tainted', name: 'With taints', value: ({ withTaints }) => withTaints },
  {
    key: 'verdict',
    name: 'Reaches',
    value({ missing, withTaints, selected, expected }) {
      if (!expected) return 'others';
      if (missing.length) return 'not all';
      return withTaints < selected ? 'untainted' : 'all';
    },
    cell(row) {
      const verdict = this.value(row);
      return badge({ all: 'fine', untainted: 'medium', 'not all': 'high' }[verdict] ?? 'plain', verdict);
    },
  },
  {
    key: 'add', name: 'Missing, and tolerations to add', value: ({ missing }) => missing.length,
    cell: ({ missing, add }) => [
      missing.length > 0 && make('p', {}, 'Not on ', missing.slice(0, 12).map((name, at) => [
        at ? ', ' : '', nodesByName.has(name) ? nodeButton(name) : name]),
      missing.length > 12 ? ` and ${missing.length - 12} more` : ''),
      add.length > 0 && make('pre', {}, add.map((line) => `- ${line.replace(/^- /, '')}`).join('\n')),
    ].filter(Boolean),
  },
];

// What a change of nodes would do is drawn by its shape alone: text, lists, tables and commands.

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const isReference = (value) => isObject(value) && 'kind' in value && 'name' in value
  && Object.keys(value).every((key) => ['apiVersion', 'kind', 'namespace', 'name'].includes(key));
const isPlain = (value) => !isObject(value) && !Array.isArray(value);
const inWords = (key) => {
  const words = key.replace(/([a-z0-9])([A-Z])/g, '$1 $2').replace(/[-_]/g, ' ').toLowerCase()
    .replace(/\bdaemon set/g, 'DaemonSet').replace(/\bgpu/g, 'GPU').replace(/\bcpu\b/g, 'CPU');
  return words.charAt(0).toUpperCase() + words.slice(1);
};
const isCommand = (text) => typeof text === 'string' && (text.includes('\n') || /^(#|kubectl |gpufence )/.test(text));

function inOneCell(value) {
  if (value === null || value === undefined) return '';
  if (isReference(value)) return nameOf(value);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'number') return count.format(value);
  if (Array.isArray(value)) return value.map(inOneCell).join(', ');
  if (isObject(value) && 'cpuMilli' in value && 'memoryBytes' in value) return showRequests(value);
  if (isObject(value)) return Object.entries(value).map(([key, part]) => `${inWords(key)}: ${inOneCell(part)}`).join(', ');
  return value;
}

function told(value, level) {
  if (isReference(value) || isPlain(value)) {
    const text = inOneCell(value);
    return isCommand(text) ? make('pre', {}, text) : make('p', {}, prose(text));
  }
  if (Array.isArray(value)) {
    if (value.length === 0) return make('p', { class: 'more' }, 'None.');
    if (value.every(isCommand)) return make('pre', {}, value.join('\n'));
    if (value.every((item) => isObject(item) && !isReference(item))) return toldTable(value);
    const host = make('div', { class: 'table' });
    if (value.length > PAGE_SIZE) {
      tables.push(new Table(host, { name: 'List', columns: [{ key: 'item', name: 'Item', value: inOneCell }] }));
      tables.at(-1).show(value);
      return host;
    }
    return make('ul', {}, value.map((item) => make('li', {}, prose(inOneCell(item)))));
  }
  const entries = Object.entries(value).filter(([, part]) => part !== null && part !== undefined);
  const rest = entries.filter(([key]) => key !== 'verdict');
  const short = rest.filter(([, part]) => (isPlain(part) || isReference(part)) && !isCommand(part) && String(part).length < 60);
  const long = rest.filter((entry) => !short.includes(entry));
  return [
    // What is decided comes first, whatever the order of the rest.
    entries.filter(([key]) => key === 'verdict').map(([, verdict]) => make('p', { class: 'lead' }, prose(inOneCell(verdict)))),
    short.length > 0 && make('dl', { class: 'facts' }, short.map(([key, part]) =>
      make('div', {}, make('dt', {}, inWords(key)), make('dd', {}, inOneCell(part))))),
    long.map(([key, part]) => [make(`h${Math.min(level, 6)}`, {}, inWords(key)), told(part, level + 1)]),
  ];
}

function toldTable(rows) {
  const keys = [...new Set(rows.flatMap(Object.keys))];
  const host = make('div', { class: 'table' });
  const value = (key) => (row) => (typeof row[key] === 'number' ? row[key] : String(inOneCell(row[key])));
  const columns = keys.map((key) => ({
    key: `told-${key}`, name: inWords(key), value: value(key),
    cell: (row) => (isCommand(row[key]) ? make('pre', {}, row[key]) : prose(inOneCell(row[key]))),
  }));
  tables.push(new Table(host, { name: 'What if', columns, size: 25 }));
  tables.at(-1).show(rows);
  return host;
}

function drawWhatIf() {
  const given = audit.whatIf;
  const all = given === null || given === undefined ? [] : [given].flat();
  byId('what-if').querySelector('.told').replaceChildren(...all.map((one) =>
    make('article', { class: 'change' }, told(one, 3))));
  return all.length;
}
