// Audits in the form of their JSON, for the page to draw: one with everything in it, and one of any size.

const GI = 2 ** 30;

const amounts = (cpu = 0, memory = 0, pods = 0, extended = {}) => ({
  cpuMilli: cpu * 1000, memoryBytes: memory * GI, ephemeralStorageBytes: 0, pods, extended,
});

const object = (kind, namespace, name, apiVersion = 'v1') => ({ apiVersion, kind, namespace, name });

const CLASS_KEYS = {
  'gpu-workload': 'gpuWorkload', 'daemon-set': 'daemonSet', platform: 'platform', ordinary: 'ordinary',
};

const TAINT = 'dedicated=gpu:NoSchedule';
const exactly = {
  how: 'tolerates', taint: TAINT, field: 'spec.tolerations[0]', toleration: TAINT, exact: true,
};
const broadly = {
  how: 'tolerates', taint: TAINT, field: 'spec.tolerations[1]', toleration: 'every taint', exact: false,
};

function occupant(name, kind, cpu, memory, { gpus = 0, entry = exactly, owner, action = '', namespace = 'ml' } = {}) {
  return {
    namespace, name, class: kind, qos: gpus ? 'Guaranteed' : cpu ? 'Burstable' : 'BestEffort',
    ...(owner ? { controller: owner } : {}),
    requests: amounts(cpu, memory, 1, gpus ? { 'nvidia.com/gpu': gpus } : {}), entry, action,
  };
}

const train = (at, gpus) => occupant(`train-${at}`, 'gpu-workload', 8 * gpus, 48 * gpus, {
  gpus, owner: object('Job', 'ml', `train-${at}`, 'batch/v1'),
});
const plugin = (at) => occupant(`device-plugin-${at}`, 'daemon-set', 0.1, 0.25, {
  namespace: 'gpu-operator', entry: broadly, owner: object('DaemonSet', 'gpu-operator', 'nvidia-device-plugin', 'apps/v1'),
});
const proxy = (at) => occupant(`kube-proxy-${at}`, 'platform', 0.1, 0.125, { namespace: 'kube-system', entry: broadly });
const web = (name, cpu, memory, entry = { how: 'before-taint', taint: TAINT }) => occupant(name, 'ordinary', cpu, memory, {
  namespace: 'web', entry, owner: object('Deployment', 'web', 'storefront', 'apps/v1'),
  action: 'Move it off the node:\nkubectl -n web rollout restart deployment storefront',
});

function node(name, group, occupants, { pools = ['nvidia'], gpus = 8, blocked = 0, ...more } = {}) {
  const requested = Object.fromEntries(Object.values(CLASS_KEYS).map((key) => [key, amounts()]));
  let used = 0;
  for (const { class: kind, requests } of occupants) {
    const into = requested[CLASS_KEYS[kind]];
    for (const key of ['cpuMilli', 'memoryBytes', 'pods']) into[key] += requests[key];
    used += requests.extended['nvidia.com/gpu'] ?? 0;
  }
  const takes = more.ready !== false && !more.unschedulable;
  return {
    name, pools, group, ready: true, unschedulable: false, taints: [TAINT],
    gpus: { allocatable: gpus, requested: used, free: takes ? gpus - used : 0, blocked },
    resources: [{ name: 'nvidia.com/gpu', capacity: 8, allocatable: gpus, requested: used }],
    blockedBy: blocked ? ['cpu', 'memory'] : [],
    allocatable: amounts(96, 1024, 110, { 'nvidia.com/gpu': gpus }),
    requested, occupants, ...more,
  };
}

function finding(rule, severity, about, message, action, more = {}) {
  const { kind, namespace, name } = about;
  return { rule, severity, object: about, ...more, message, action, fingerprint: `${rule}/${kind}/${namespace}/${name}` };
}

const aboutNode = (rule, severity, name, message, action, more) =>
  finding(rule, severity, object('Node', '', name), message, action, { pool: 'nvidia', ...more });

/** Names and texts of which a page must make nothing but text. */
export const HOSTILE = [
  '<img src=x onerror="window.harmed=1">', '</script><script>window.harmed=1</script>', '<!--<script>',
  '{{script}}', '\u2028window.harmed=1\u2029', 'safe\u202egnp.exe', '&lt;b&gt;', '"onmouseover=window.harmed=1 x="',
];

function accounted(nodes, findings, more) {
  const severities = { high: 0, medium: 0, low: 0, info: 0 };
  for (const { severity } of findings) severities[severity] += 1;
  const order = Object.keys(severities);
  findings.sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
  const podsOnGpuNodes = Object.fromEntries(Object.values(CLASS_KEYS).map((key) => [key, 0]));
  const pools = new Map();
  for (const { pools: [name], gpus, occupants } of nodes) {
    const pool = pools.get(name) ?? {
      name, nodes: 0, gpus: { allocatable: 0, requested: 0, free: 0, blocked: 0 }, ordinaryPods: 0, needs: amounts(8, 48, 1),
    };
    pools.set(name, pool);
    pool.nodes += 1;
    for (const key of Object.keys(gpus)) pool.gpus[key] += gpus[key];
    for (const { class: kind } of occupants) {
      podsOnGpuNodes[CLASS_KEYS[kind]] += 1;
      pool.ordinaryPods += kind === 'ordinary' ? 1 : 0;
    }
  }
  return {
    version: 'gpufence.io/audit/v1', taken: '2026-11-30T12:00:00Z', source: 'cluster.json', mode: 'enforce',
    summary: {
      nodes: nodes.length * 4, gpuNodes: nodes.length,
      driftedNodes: new Set(findings.filter(({ rule }) => rule.startsWith('node-w')).map(({ object: { name } }) => name)).size,
      pods: 1843, podsOnGpuNodes, findings: severities,
    },
    pools: [...pools.values()], nodes, daemonSets: [], pending: [], findings, gaps: [], ...more,
  };
}

/** An audit that has everything in it which the page draws. */
export function rich() {
  const a100 = 'node pool gpu-a100';
  const l4 = { pools: ['inference'], gpus: 4 };
  const nodes = [
    node('gpu-a100-01', a100, [train(1, 4), train(2, 4), plugin(1), proxy(1)]),
    node('gpu-a100-02', a100, [train(3, 5), web('storefront-6c9d-x2x', 40, 300), web('storefront-6c9d-k8s', 12, 400), plugin(2), proxy(2)], { blocked: 3 }),
    node('gpu-a100-03', a100, [plugin(3), proxy(3), web('cart-0', 4, 16, { how: 'no-taint' })], { taints: [] }),
    node('gpu-a100-04', a100, [train(4, 8), plugin(4), proxy(4)], { unschedulable: true }),
    node('gpu-a100-05', a100, [train(5, 2), plugin(5)], { ready: false, gpus: 6 }),
    node('gpu-a100-06', a100, [train(6, 1), web('report-29', 2, 4, { how: 'node-name' }), plugin(6), proxy(6)]),
    node('gpu-mig-01', 'node pool gpu-mig', [train(7, 9), plugin(7), proxy(7)], { gpus: 56, taints: ['dedicated=GPU:PreferNoSchedule'] }),
    ...[1, 2, 3, 4].map((at) => node(`gpu-l4-0${at}`, 'node pool gpu-l4', [train(`l4-${at}`, at), plugin(`l4-${at}`), proxy(`l4-${at}`)], l4)),
    node(HOSTILE[0], HOSTILE[1], HOSTILE.map((name) => web(name, 1, 1)), { taints: [HOSTILE[0]] }),
  ];
  const untaint = 'kubectl taint node gpu-a100-03 dedicated=gpu:NoSchedule';
  const findings = [
    aboutNode('node-without-taint', 'high', 'gpu-a100-03', 'offers 8 GPUs and has no taint: any pod may land on it; the pool `nvidia` wants `dedicated=gpu:NoSchedule`.', `Add the taint:\n${untaint}`, { field: 'spec.taints' }),
    aboutNode('node-taint-differs', 'high', 'gpu-mig-01', 'has the taint `dedicated=GPU:PreferNoSchedule`; the contract wants `dedicated=gpu:NoSchedule`. PreferNoSchedule keeps nothing off.', 'kubectl taint node gpu-mig-01 dedicated- && kubectl taint node gpu-mig-01 dedicated=gpu:NoSchedule', { field: 'spec.taints[0]' }),
    aboutNode('node-group-drift', 'medium', 'gpu-a100-03', 'differs from the 5 others of node pool gpu-a100: it lacks the taint `dedicated=gpu:NoSchedule`.', 'Recreate it from the template, or mend it as above.'),
    aboutNode('gpus-blocked', 'high', 'gpu-a100-02', '3 of 3 free GPUs cannot be used: pods that request no GPU took 52 CPU and 700 Gi memory.', 'Move web/storefront off the node.'),
    aboutNode('node-cordoned', 'info', 'gpu-a100-04', 'is cordoned: it takes no new pods.', 'kubectl uncordon gpu-a100-04'),
    aboutNode('node-not-ready', 'medium', 'gpu-a100-05', 'is not ready; 6 of 8 GPUs are offered.', 'kubectl describe node gpu-a100-05'),
    ...['storefront-6c9d-x2x', 'storefront-6c9d-k8s'].map((name) => finding('ordinary-pod-on-gpu-node', 'medium', object('Pod', 'web', name), 'requests no GPU and stands on the GPU node gpu-a100-02; it was there before the taint.', 'kubectl -n web rollout restart deployment storefront', { controller: object('Deployment', 'web', 'storefront', 'apps/v1'), pool: 'nvidia', node: 'gpu-a100-02' })),
    finding('ordinary-pod-on-gpu-node', 'high', object('Pod', 'web', 'report-29'), 'requests no GPU; its creator set spec.nodeName to gpu-a100-06.', 'Remove spec.nodeName from the template of CronJob web/report.', { controller: object('CronJob', 'web', 'report', 'batch/v1'), pool: 'nvidia', node: 'gpu-a100-06', field: 'spec.nodeName' }),
    finding('broad-toleration', 'high', object('Deployment', 'web', 'cart', 'apps/v1'), 'tolerates every taint by `operator: Exists` without a key.', 'Name the taint that it means:\n  tolerations:\n  - key: example.com/batch\n    operator: Exists', { pool: 'nvidia', field: 'spec.template.spec.tolerations[0]' }),
    finding('template-without-placement', 'low', object('StatefulSet', 'ml', 'notebook', 'apps/v1'), 'requests nvidia.com/gpu and relies on the webhook for its toleration and selector.', 'Add both to the template, so that it also starts while the webhook is away.', { pool: 'inference', field: 'spec.template.spec' }),
    finding('namespace-missing', 'low', object('Namespace', '', 'research-old'), 'the allowlist of pool nvidia names the namespace research-old, which does not exist.', 'Remove it from pools[0].namespaces.names.', { pool: 'nvidia' }),
    finding('exemption-expired', 'low', object('Exemption', '', 'legacy-render'), 'expired on 2026-10-01.', 'Remove it, or renew it with an owner.'),
    finding('daemonset-left-out', 'medium', object('DaemonSet', 'logging', 'fluent-bit', 'apps/v1'), 'belongs on every node and does not tolerate `dedicated=gpu:NoSchedule`.', '- key: dedicated\n  operator: Equal\n  value: gpu\n  effect: NoSchedule'),
    ...HOSTILE.map((name) => finding('unreadable', 'info', object(name, name, name), name, name, { pool: name, node: name, field: name, controller: object(name, name, name) })),
  ];
  return accounted(nodes, findings, {
    source: 'nodes.json, workloads.json',
    daemonSets: [
      { daemonSet: object('DaemonSet', 'gpu-operator', 'nvidia-device-plugin', 'apps/v1'), role: 'device plugin', expected: true, selected: 12, running: 12, missing: [], withTaints: 12, add: [] },
      { daemonSet: object('DaemonSet', 'logging', 'fluent-bit', 'apps/v1'), role: 'logs', expected: true, selected: 12, running: 1, missing: nodes.slice(0, 11).map(({ name }) => name), withTaints: 0, add: ['{key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}'] },
      { daemonSet: object('DaemonSet', 'edge', 'cache', 'apps/v1'), expected: false, selected: 0, running: 0, missing: [], withTaints: 0, add: [] },
    ],
    pending: [
      { object: object('Pod', 'ml', 'train-9'), controller: object('Job', 'ml', 'train-9', 'batch/v1'), pool: 'nvidia', causes: ['blocked', 'gpus'], scheduler: '0/48 nodes are available: 36 node(s) had untolerated taint, 12 Insufficient cpu.', message: 'asks for 4 GPUs: gpu-a100-02 has 3 that are free and blocked, no other node has 4.', action: 'Move web/storefront off gpu-a100-02.' },
      { object: object('Pod', 'web', HOSTILE[1]), causes: ['toleration'], message: HOSTILE[0], action: HOSTILE[5] },
    ],
    gaps: ['the events of the cluster are not all known', `dump.json#12: the Pod cannot be read: ${HOSTILE[0]}`],
    whatIf: {
      change: 'taint-no-execute',
      pool: 'nvidia',
      adds: ['dedicated=gpu:NoExecute'],
      verdict: 'Taint dedicated=gpu:NoExecute on 2 nodes: 3 pods would be evicted, 1 could not come back.',
      summary: { nodesChanged: 2, nodesUnchanged: 10, evicted: 3, cannotReturn: 1, withoutController: 1, withRoom: 2, withoutRoom: 1 },
      nodes: ['gpu-a100-02', 'gpu-a100-03'].map((name) => ({ name, adds: ['dedicated=gpu:NoExecute'], replaces: [], offersGpus: true, ordinaryPods: 2 })),
      pods: [
        { namespace: 'web', name: 'storefront-6c9d-x2x', node: 'gpu-a100-02', controller: object('Deployment', 'web', 'storefront', 'apps/v1'), requestsGpu: false, fate: 'evicted', next: 'elsewhere', to: 'cpu-3' },
        { namespace: 'web', name: HOSTILE[0], node: 'gpu-a100-03', requestsGpu: false, fate: 'evicted', afterSeconds: 300, next: 'nowhere', why: 'no other node has its label' },
      ],
      daemonSets: [{ daemonSet: object('DaemonSet', 'logging', 'fluent-bit', 'apps/v1'), fate: 'evicted', nodes: ['gpu-a100-02'], add: ['{key: dedicated, operator: Exists}'] }],
      budgets: [],
      newcomers: { pending: [object('Pod', 'ml', 'train-9')], ordinary: [] },
      gaps: ['the poddisruptionbudgets of the cluster are not all known'],
      backupCommands: ['kubectl get node gpu-a100-02 gpu-a100-03 -o json > nodes-before.json'],
      pilotNode: 'gpu-a100-03',
      pilot: [
        { note: 'Keep new pods off.', command: 'kubectl cordon gpu-a100-03' },
        { note: 'Set the taint.', command: untaint },
      ],
      rollback: ['# gpu-a100-03', 'kubectl taint node gpu-a100-03 dedicated:NoExecute-'],
    },
  });
}

/** An audit of so many nodes and findings. */
export function large(nodes, findings) {
  const name = (at) => `gpu-${at}`;
  const all = Array.from({ length: nodes }, (_, at) =>
    node(name(at), `node pool ${at % 40}`, [train(at, 1 + (at % 8)), plugin(at), proxy(at), ...(at % 10 ? [] : [web(`web-${at}`, 2, 4)])], { pools: [`pool-${at % 3}`] }));
  const severities = ['high', 'medium', 'low', 'info'];
  return accounted(all, Array.from({ length: findings }, (_, at) => finding(
    ['node-without-taint', 'ordinary-pod-on-gpu-node', 'unreadable'][at % 3], severities[at % 4],
    at % 3 ? object('Pod', `team-${at % 200}`, `pod-${at}`) : object('Node', '', name(at % nodes)),
    `finding number ${at}`, `kubectl get node ${name(at % nodes)}`, { pool: `pool-${at % 3}`, node: name(at % nodes) })));
}
