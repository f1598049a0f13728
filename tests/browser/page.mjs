// Opens the page that `gpufence audit --output html` writes in a real headless Chromium.
//
//   node tests/browser/page.mjs GPUFENCE MODULES [SCREENSHOTS]
//
// GPUFENCE is the built binary, MODULES the folder that install.sh prints; the pictures of the page are left in
// SCREENSHOTS. Each test is one line of the output, and the last says how many passed.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

import { HOSTILE, large, rich } from './sample.mjs';

const [binary, modules, pictures] = process.argv.slice(2);
const { chromium } = createRequire(join(resolve(modules), 'node_modules', '_'))('playwright-core');
const work = mkdtempSync(join(tmpdir(), 'gpufence-page-'));

const DESKTOP = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
const NARROW = { width: 360, height: 780 };

/** A cluster of one GPU node and one pod, as kubectl prints it. */
const DUMP = {
  apiVersion: 'v1',
  kind: 'List',
  items: [
    {
      apiVersion: 'v1', kind: 'Node', metadata: { name: 'gpu-1', labels: { 'nvidia.com/gpu.present': 'true' } }, spec: {},
      status: {
        capacity: { cpu: '8', memory: '64Gi', pods: '110', 'nvidia.com/gpu': '2' },
        allocatable: { cpu: '8', memory: '64Gi', pods: '110', 'nvidia.com/gpu': '2' },
        conditions: [{ type: 'Ready', status: 'True' }],
      },
    },
    {
      apiVersion: 'v1', kind: 'Pod', metadata: { name: 'shop', namespace: 'web', uid: 'shop', creationTimestamp: '2026-11-01T00:00:00Z' },
      spec: { nodeName: 'gpu-1', containers: [{ name: 'main', image: 'main' }] }, status: { phase: 'Running' },
    },
  ],
};

/** The page as the binary writes it. */
const dump = join(work, `cluster ${HOSTILE[0].replaceAll('/', '')}.json`);
writeFileSync(dump, JSON.stringify(DUMP));
const written = execFileSync(binary, ['audit', dump, '--output', 'html'], { encoding: 'utf8' });

let files = 0;
function file(html) {
  const path = join(work, `page-${files += 1}.html`);
  writeFileSync(path, html);
  return pathToFileURL(path).href;
}

/** The same page with another audit in it, as the binary would embed it. */
function withAudit(audit) {
  const [begin, end] = ['<script id="audit" type="application/json">', '</script>'];
  const from = written.indexOf(begin) + begin.length;
  assert.ok(from > begin.length, 'the page has no audit in it');
  const json = JSON.stringify(audit).replaceAll('<', '\\u003c').replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029');
  return file(written.slice(0, from) + json + written.slice(written.indexOf(end, from)));
}

const urls = { written: file(written), rich: withAudit(rich()), large: withAudit(large(5000, 20000)) };
const browser = await chromium.launch({
  executablePath: execFileSync('sh', ['-c', 'command -v -- "$0"', process.env.CHROMIUM || 'chromium'], { encoding: 'utf8' }).trim(),
  // Chromium's sandbox refuses to run as root; the page is the project's own.
  chromiumSandbox: process.getuid() !== 0,
});

/** Opens a page, lets the test use it, and fails on whatever the browser complains of or asks for. */
async function open(url, use, { viewport = DESKTOP, colorScheme = 'light', javaScriptEnabled = true } = {}) {
  const context = await browser.newContext({ viewport, colorScheme, javaScriptEnabled, reducedMotion: 'reduce' });
  const page = await context.newPage();
  const amiss = [];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && amiss.push(`console: ${message.text()}`));
  page.on('pageerror', (error) => amiss.push(`error: ${error.stack}`));
  page.on('dialog', (dialog) => amiss.push(`dialog: ${dialog.message()}`));
  page.on('request', (request) => {
    const asked = request.url();
    if (asked.split('#')[0] !== url.split('#')[0] && !asked.startsWith('data:image/svg+xml,')) amiss.push(`request: ${asked}`);
  });
  await page.goto(url);
  if (javaScriptEnabled) await page.locator('#page').waitFor({ state: 'visible', timeout: 60000 });
  await use(page);
  if (javaScriptEnabled) assert.equal(await page.evaluate(() => window.harmed), undefined, 'a value of the audit ran');
  await context.close();
  assert.deepEqual(amiss, []);
}

const tests = [];
const test = (name, run) => tests.push([name, run]);

const rowsOf = (page, section = 'findings') => page.locator(`#${section} tbody tr`);
const column = (page, key, section = 'findings') => page.locator(`#${section} tbody td.of-${key}`).allInnerTexts();
const select = (page, name) => page.locator(`#finding-filter select[name=${name}]`);
const tileOf = (page, name) => page.locator('#map .tile', { hasText: name });
const tiles = (page) => page.locator('#map .tile');
const overflow = (page) => page.evaluate(() => document.scrollingElement.scrollWidth - window.innerWidth);
const picture = async (page, name, options = { fullPage: true }) => {
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), ...options });
};

for (const colorScheme of ['light', 'dark']) {
  for (const [width, viewport] of Object.entries({ desktop: DESKTOP, phone: PHONE, narrow: NARROW })) {
    test(`renders at ${width} width in ${colorScheme}`, () => open(urls.rich, async (page) => {
      const audit = rich();
      assert.equal(await page.locator('h1').innerText(), audit.source);
      assert.equal(await tiles(page).count(), audit.nodes.length);
      assert.equal(await rowsOf(page).count(), audit.findings.length);
      assert.equal(await page.locator('article.pool').count(), audit.pools.length);
      assert.equal(await rowsOf(page, 'coverage').count(), audit.daemonSets.length);
      assert.equal(await rowsOf(page, 'pending').count(), audit.pending.length);
      assert.equal(await rowsOf(page, 'gaps').count(), audit.gaps.length);
      assert.match(await page.locator('#what-if').innerText(), /3 pods would be evicted/);
      assert.deepEqual(await page.locator('#what-if pre').allInnerTexts(), [
        audit.whatIf.backupCommands[0], ...audit.whatIf.pilot.map(({ command }) => command), audit.whatIf.rollback.join('\n'),
      ]);
      assert.ok(await overflow(page) <= 0, `${await overflow(page)} px too wide`);
      await picture(page, `${width}-${colorScheme}`);
      await tileOf(page, 'gpu-a100-02').click();
      assert.ok(await overflow(page) <= 0, 'the details make the page too wide');
      const sheet = await page.locator('.sheet').evaluate((element) => element.scrollWidth - element.clientWidth);
      assert.ok(sheet <= 0, `the details are ${sheet} px too wide`);
      await picture(page, `${width}-${colorScheme}-node`, {});
    }, { viewport, colorScheme }));
  }
}

test('the page as the binary writes it', () => open(urls.written, async (page) => {
  const shown = JSON.parse(await page.locator('#audit').textContent());
  const json = JSON.parse(execFileSync(binary, ['audit', dump, '--output', 'json'], { encoding: 'utf8' }));
  assert.deepEqual({ ...shown, taken: '' }, { ...json, taken: '' });
  assert.equal(await page.locator('h1').innerText(), json.source);
  assert.equal(await tiles(page).count(), json.nodes.length);
  assert.equal(await rowsOf(page).count(), json.findings.length);
  assert.equal(await page.locator('#broken').isVisible(), false);
}));

test('nothing found is said', () => open(withAudit({
  ...rich(), nodes: [], findings: [], pools: [], daemonSets: [], pending: [], gaps: [], whatIf: undefined,
  summary: { ...rich().summary, findings: { high: 0, medium: 0, low: 0, info: 0 } },
}), async (page) => {
  assert.match(await page.locator('#verdict').innerText(), /The fence holds: nothing was found\./);
  for (const id of ['gaps', 'pools', 'nodes', 'what-if', 'pending', 'coverage']) {
    assert.equal(await page.locator(`#${id}`).isVisible(), false, id);
  }
  assert.equal(await page.locator('#finding-count').innerText(), '0 findings');
}));

test('every heading sorts, as aria-sort says', () => open(urls.rich, async (page) => {
  const rank = ['high', 'medium', 'low', 'info'];
  for (const section of ['findings', 'occupants', 'pending', 'coverage', 'gaps']) {
    const heads = page.locator(`#${section} th`);
    for (let at = 0; at < await heads.count(); at += 1) {
      const head = heads.nth(at);
      const key = (await head.getAttribute('class')).replace('of-', '');
      const before = await head.getAttribute('aria-sort');
      await head.getByRole('button').click();
      const first = await head.getAttribute('aria-sort');
      assert.equal(first, before === 'ascending' ? 'descending' : 'ascending');
      const one = await column(page, key, section);
      await head.getByRole('button').click();
      const second = await head.getAttribute('aria-sort');
      assert.deepEqual([first, second].sort(), ['ascending', 'descending']);
      const two = await column(page, key, section);
      // The pods are on two pages, so that the other end of them is shown.
      if (section !== 'occupants') assert.deepEqual([...one].sort(), [...two].sort(), `${section} ${key} lost rows`);
      if (new Set(one).size > 1) assert.notDeepEqual(one, two, `${section} ${key} did not turn around`);
      assert.equal(await page.locator(`#${section} th[aria-sort]`).count(), 1);
      const up = first === 'ascending' ? one : two;
      if (['rule', 'namespace', 'pool'].includes(key) && section === 'findings') {
        assert.deepEqual(up, [...up].sort(new Intl.Collator('en', { numeric: true }).compare));
      }
      if (key === 'severity') assert.deepEqual(up, [...up].sort((a, b) => rank.indexOf(b) - rank.indexOf(a)));
      if (key === 'selected') assert.deepEqual(up.map(Number), up.map(Number).sort((a, b) => a - b));
    }
  }
}));

test('findings are filtered by text, severity, rule, namespace and pool', () => open(urls.rich, async (page) => {
  const { findings } = rich();
  const expect = async (holds) => {
    const wanted = findings.filter(holds).length;
    assert.ok(wanted > 0 && wanted < findings.length, 'the case says nothing');
    assert.equal(await rowsOf(page).count(), wanted);
    assert.equal(await page.locator('#finding-count').innerText(), `${wanted} of ${findings.length} findings`);
  };
  const clear = async () => {
    await page.getByRole('button', { name: 'Clear' }).click();
    assert.equal(await rowsOf(page).count(), findings.length);
  };
  await page.getByLabel('Text').fill('Storefront MOVE');
  await expect(({ message, action }) => /storefront/.test(action) && /move/i.test(action + message));
  await clear();
  for (const [label, key, of] of [
    ['severity', 'high', ({ severity }) => severity], ['rule', 'node-without-taint', ({ rule }) => rule],
    ['namespace', 'web', ({ object }) => object.namespace], ['pool', 'inference', ({ pool }) => pool],
  ]) {
    await select(page, label).selectOption(key);
    await expect((finding) => of(finding) === key);
    await clear();
  }
  for (const name of HOSTILE) {
    await select(page, 'pool').selectOption({ value: name });
    await expect(({ pool }) => pool === name);
  }
  await clear();
  await page.locator('#verdict button.medium').click();
  await expect(({ severity }) => severity === 'medium');
  await select(page, 'rule').selectOption('node-not-ready');
  await expect(({ severity, rule }) => severity === 'medium' && rule === 'node-not-ready');
}));

test('nodes are filtered by name, ordinary pods, blocked GPUs and drift', () => open(urls.rich, async (page) => {
  const expect = async (names) => assert.deepEqual(await page.locator('#map .tile .title b').allInnerTexts(), names);
  await page.getByLabel('with blocked GPUs').check();
  await expect(['gpu-a100-02']);
  assert.equal(await rowsOf(page, 'occupants').count(), 5);
  await page.getByLabel('with blocked GPUs').uncheck();
  await page.getByLabel('that differ from the contract').check();
  await expect(['gpu-a100-03', 'gpu-mig-01']);
  await page.getByLabel('with ordinary pods').check();
  await expect(['gpu-a100-03']);
  await page.getByLabel('that differ from the contract').uncheck();
  await page.getByLabel('with ordinary pods').uncheck();
  await page.getByLabel('Name or group').fill('gpu-l4 inference');
  await expect(['gpu-l4-01', 'gpu-l4-02', 'gpu-l4-03', 'gpu-l4-04']);
}));

test('details open by click and by keyboard, and close', () => open(urls.rich, async (page) => {
  const dialog = page.getByRole('dialog');
  const second = tileOf(page, 'gpu-a100-02');
  await second.click();
  assert.equal(await dialog.getByRole('heading', { level: 2 }).innerText(), 'gpu-a100-02');
  const text = await dialog.innerText();
  for (const part of ['3 free GPUs cannot be used', 'what is left of cpu, memory', 'web/storefront-6c9d-x2x',
    'of Deployment web/storefront', 'Burstable', 'was there before the taint', 'rollout restart', 'gpus-blocked']) {
    assert.ok(text.includes(part), `${part} is not in the details`);
  }
  assert.equal(await dialog.locator('tbody tr').count(), 5);
  await page.keyboard.press('Escape');
  assert.equal(await dialog.count(), 0);
  for (const key of ['Enter', 'Space']) {
    await second.focus();
    await page.keyboard.press(key);
    assert.equal(await dialog.count(), 1, key);
    await dialog.getByRole('button', { name: 'Close' }).click();
    assert.equal(await dialog.count(), 0);
    assert.ok(await second.evaluate((element) => element === document.activeElement), 'the focus does not come back');
  }
  await rowsOf(page).getByRole('button', { name: 'gpu-a100-03' }).first().click();
  assert.equal(await dialog.getByRole('heading', { level: 2 }).innerText(), 'gpu-a100-03');
}));

test('a link shows what it was copied from', () => open(urls.rich, async (page) => {
  await page.getByLabel('Text').fill('taint & more=#');
  await page.getByLabel('Text').fill('gpu');
  await select(page, 'severity').selectOption('high');
  await page.locator('#findings th.of-rule button').click();
  await page.locator('#findings th.of-rule button').click();
  await page.getByLabel('with ordinary pods').check();
  await tiles(page).first().click();
  const link = page.url();
  const of = async (shown) => [
    await column(shown, 'object'), await shown.locator('#map .title b').allInnerTexts(),
    await shown.locator('#findings th.of-rule').getAttribute('aria-sort'), await shown.locator('#node-name').innerText(),
  ];
  const here = await of(page);
  assert.equal(here[2], 'descending');
  await open(link, async (other) => assert.deepEqual(await of(other), here));
  await page.goto(`${urls.rich}#rule=gone&node=gone&page=99&sort=gone`);
  assert.equal(await rowsOf(page).count(), 0);
  assert.equal(await select(page, 'rule').inputValue(), 'gone');
}));

test('on paper there are no controls and all findings', () => open(urls.large, async (page) => {
  await select(page, 'severity').selectOption('low');
  assert.equal(await rowsOf(page).count(), 50);
  await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
  await page.waitForFunction(() => document.querySelectorAll('#findings tbody tr').length === 5000);
  assert.equal(await page.locator('input:visible, select:visible, .pager:visible, nav:visible, dialog:visible').count(), 0);
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(255, 255, 255)');
  assert.match(await page.locator('#occupants .left').innerText(), /^And [\d,]+ more that are not printed\.$/);
  await page.emulateMedia({ media: 'screen' });
  await page.waitForFunction(() => document.querySelectorAll('#findings tbody tr').length === 50);
}));

test('it prints', () => open(urls.rich, async (page) => {
  const pdf = await page.pdf({ format: 'A4' });
  assert.ok(pdf.length > 10000);
  if (pictures) writeFileSync(join(pictures, 'print.pdf'), pdf);
  await page.emulateMedia({ media: 'print' });
  await page.setViewportSize({ width: 720, height: 1000 });
  assert.equal(await rowsOf(page).count(), rich().findings.length);
  assert.ok(await overflow(page) <= 0, 'it is too wide for the paper');
  await picture(page, 'print');
}));

test('hostile names stay text', () => open(urls.rich, async (page) => {
  const text = await page.locator('#page').innerText();
  for (const name of HOSTILE) {
    const shown = name.replace(/[\u202e]/g, '\ufffd').replace(/[\u2028\u2029]/g, '');
    assert.ok(text.replace(/[\u2028\u2029]/g, '').includes(shown), `${name} is not shown as it is`);
  }
  assert.ok(!text.includes('\u202e'), 'the direction of writing turns around');
  assert.equal(await page.locator('img').count(), 0);
  assert.equal(await page.locator('script').count(), 2);
  await page.locator('#map .tile', { hasText: '<img' }).click();
  assert.equal(await page.locator('#node-name').innerText(), HOSTILE[0]);
  assert.equal(await page.locator('img').count(), 0);
}));

test('its policy lets no other script run and nothing be fetched', async () => {
  const injected = written.replace('<section id="pools"', '<script>window.harmed=1</script><img src="https://example.com/x.png"><section id="pools"');
  await assert.rejects(open(file(injected), async (page) => {
    assert.equal(await page.evaluate(() => window.harmed), undefined);
  }), /Content Security Policy/);
});

test('what is shown of a large cluster is bounded, and all of it can be reached', () => open(urls.large, async (page) => {
  assert.equal(await tiles(page).count(), 240);
  assert.equal(await rowsOf(page).count(), 50);
  assert.equal(await rowsOf(page, 'occupants').count(), 25);
  assert.ok(await page.evaluate(() => document.querySelectorAll('*').length) < 20000);
  assert.equal(await page.locator('#finding-count').innerText(), '20,000 findings');
  await page.getByRole('button', { name: 'Last page of Findings' }).click();
  assert.match(await page.locator('#findings .pager span').innerText(), /19,951 to 20,000 of 20,000/);
  await page.locator('#findings th.of-message button').click();
  assert.equal((await column(page, 'message'))[0].split('\n')[0].trim(), 'finding number 0');
  await page.getByRole('button', { name: 'Next page of Findings' }).press('Enter');
  assert.match((await column(page, 'message'))[0], /^finding number 50\b/);
  await page.getByLabel('Text').fill('pod-19999');
  assert.equal(await rowsOf(page).count(), 1);
  const more = page.locator('#map button.more:visible').first();
  const [, number] = /^Show (\d+) more of /.exec(await more.innerText());
  await more.click();
  assert.equal(await tiles(page).count(), 240 + Number(number));
  assert.ok(Number(number) <= 60);
  await page.getByLabel('Name or group').fill('gpu-4999');
  assert.equal(await tiles(page).count(), 1);
  assert.equal(await overflow(page), 0);
}));

test('a DaemonSet that only an untainted node lets in does not count as safe', () => open(withAudit({
  ...rich(), daemonSets: [{ ...rich().daemonSets[0], withTaints: 3, add: ['{key: dedicated, operator: Exists}'] }, ...rich().daemonSets],
}), async (page) => {
  assert.deepEqual(await column(page, 'verdict', 'coverage'), ['untainted', 'all', 'not all', 'others']);
  assert.match((await column(page, 'add', 'coverage'))[0], /- \{key: dedicated, operator: Exists\}/);
}));

test('without scripts there is a summary and the worst findings', () => open(urls.written, async (page) => {
  const json = JSON.parse(execFileSync(binary, ['audit', dump, '--output', 'json'], { encoding: 'utf8' }));
  assert.equal(await page.locator('h1').first().innerText(), json.source);
  assert.match(await page.locator('noscript').innerText(), /Scripts are off/);
  assert.equal(await page.locator('noscript section').last().locator('tbody tr').count(), json.findings.length);
  assert.equal(await page.locator('img').count(), 0);
  assert.ok(await overflow(page) <= 0, 'it is too wide for a phone');
  await picture(page, 'no-scripts');
}, { javaScriptEnabled: false, viewport: PHONE }));

/** Contrast of every text with what is behind it, where that is one colour. */
const poorlySeen = () => {
  const rgb = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((all, part, at) => all + part * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  for (const element of document.querySelectorAll('#page *')) {
    const own = [...element.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !element.checkVisibility() || element.disabled) continue;
    const [a, b] = [light(rgb(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) poor.add(`${element.tagName}.${element.className}: ${contrast.toFixed(2)}`);
  }
  return [...poor];
};

for (const colorScheme of ['light', 'dark']) {
  test(`text stands out in ${colorScheme}, and controls have names`, () => open(urls.rich, async (page) => {
    assert.deepEqual(await page.evaluate(poorlySeen), []);
    await tileOf(page, 'gpu-a100-02').click();
    assert.deepEqual(await page.evaluate(poorlySeen), []);
    assert.equal(await page.locator('html').getAttribute('lang'), 'en');
    assert.deepEqual(await page.locator('button, input, select').evaluateAll((all) =>
      all.filter((one) => !one.textContent.trim() && !one.labels?.length && !one.ariaLabel).map((one) => one.outerHTML)
        .filter((html) => !html.includes('hidden'))), []);
  }, { colorScheme }));
}

let passed = 0;
for (const [name, run] of tests) {
  try {
    await run();
    passed += 1;
    console.log(`ok ${name}`);
  } catch (error) {
    process.exitCode = 1;
    console.log(`FAILED ${name}\n${error.stack}`);
  }
}
await browser.close();
rmSync(work, { recursive: true });
console.log(`${passed} passed, ${tests.length - passed} failed`);
