// ComputeSDK's provider and Mastra's sandbox for E2B, as their pages show them.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { e2b } from '@computesdk/e2b'
import { Workspace } from '@mastra/core/workspace'
import { E2BSandbox } from '@mastra/e2b'

const compute = e2b({ apiKey: process.env.E2B_API_KEY })
let sandbox

before(async () => {
  sandbox = await compute.sandbox.create({ timeout: 600_000, envs: { GREETING: 'hello' }, metadata: { job: '7' } })
})
after(async () => {
  await sandbox.destroy()
})

test('computesdk: a command', async () => {
  const done = await sandbox.runCommand('echo out; echo err >&2')
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['out\n', 'err\n', 0])
})

test('computesdk: a command that fails', async () => {
  assert.equal((await sandbox.runCommand('exit 3')).exitCode, 3)
  assert.equal((await sandbox.runCommand('no-such-command')).exitCode, 127)
})

test('computesdk: the environment of a sandbox and of a command', async () => {
  const done = await sandbox.runCommand('printenv GREETING NAME', { env: { NAME: 'ann' } })
  assert.equal(done.stdout, 'hello\nann\n')
})

test('computesdk: the folder of a command', async () => {
  assert.equal((await sandbox.runCommand('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
})

test('computesdk: a command in the background', async () => {
  const done = await sandbox.runCommand('sleep 300', { background: true })
  assert.equal(done.exitCode, 0)
  assert.match((await sandbox.runCommand('pgrep -f "sleep 300"')).stdout, /\d/)
})

test('computesdk: python by a heredoc', async () => {
  assert.equal((await sandbox.runCommand("python3 - <<'PY'\nprint(6 * 7)\nPY")).stdout, '42\n')
})

test('computesdk: node by a heredoc', async () => {
  assert.equal((await sandbox.runCommand("node - <<'JS'\nconsole.log(6 * 7)\nJS")).stdout, '42\n')
})

test('computesdk: the name python', async () => {
  assert.equal((await sandbox.runCommand("python -c 'print(1)'")).stdout, '1\n')
})

for (const folder of ['/tmp', '/home/user']) {
  test(`computesdk: files in ${folder}`, async () => {
    const files = sandbox.filesystem
    await files.mkdir(`${folder}/data`)
    await files.writeFile(`${folder}/data/a.txt`, 'one\n')
    assert.equal(await files.readFile(`${folder}/data/a.txt`), 'one\n')
    assert.deepEqual((await files.readdir(`${folder}/data`)).map((entry) => entry.name), ['a.txt'])
    assert.equal(await files.exists(`${folder}/data/a.txt`), true)
    await files.remove(`${folder}/data/a.txt`)
    assert.equal(await files.exists(`${folder}/data/a.txt`), false)
  })
}

test('computesdk: a file that is not there', async () => {
  await assert.rejects(sandbox.filesystem.readFile('/home/user/none'))
})

test('computesdk: information', async () => {
  const info = await sandbox.getInfo()
  assert.deepEqual([info.id, info.provider, info.status], [sandbox.sandboxId, 'e2b', 'running'])
})

test('computesdk: by its id', async () => {
  const again = await compute.sandbox.getById(sandbox.sandboxId)
  assert.equal((await again.runCommand('echo again')).stdout, 'again\n')
})

test('computesdk: the list', async () => {
  assert.ok((await compute.sandbox.list()).some((one) => one.sandboxId === sandbox.sandboxId))
})

test('computesdk: what was destroyed', async () => {
  const other = await compute.sandbox.create({ timeout: 60_000 })
  await other.destroy()
  assert.equal(await compute.sandbox.getById(other.sandboxId), null)
})

test('computesdk: the address of a port', async () => {
  await sandbox.runCommand('python3 -m http.server 8000', { background: true })
  assert.equal((await fetch(await sandbox.getUrl({ port: 8000, protocol: 'http' }))).status, 200)
})

test('computesdk: a snapshot', async () => {
  await compute.snapshot.create(sandbox.sandboxId, { name: 'one' })
})

const mastra = (options = {}) => new E2BSandbox({ template: 'base', timeout: 600_000, ...options })

test('mastra: the template that it builds itself', async () => {
  const own = new E2BSandbox({ timeout: 60_000 })
  try {
    await own.start()
  } finally {
    await own.destroy().catch(() => {})
  }
})

test('mastra: commands', async () => {
  const own = mastra({ env: { GREETING: 'hello' } })
  await own.start()
  try {
    const done = await own.executeCommand('sh', ['-c', 'echo $GREETING; echo err >&2'])
    assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['hello\n', 'err\n', 0])
    const failed = await own.executeCommand('sh', ['-c', 'exit 3'])
    assert.deepEqual([failed.success, failed.exitCode], [false, 3])
    const lines = []
    await own.executeCommand('echo', ['a b', '$c'], { onStdout: (text) => lines.push(text) })
    assert.equal(lines.join(''), 'a b $c\n')
  } finally {
    await own.destroy()
  }
})

test('mastra: processes', async () => {
  const own = mastra()
  await own.start()
  try {
    const cat = await own.processes.spawn('cat')
    await cat.sendStdin('typed\n')
    for (let n = 0; n < 50 && !cat.stdout.includes('typed'); n++) await new Promise((r) => setTimeout(r, 100))
    assert.equal(cat.stdout, 'typed\n')
    assert.ok((await own.processes.list()).some((one) => one.pid === cat.pid && one.running))
    assert.equal(await cat.kill(), true)
    assert.equal((await cat.wait()).success, false)
  } finally {
    await own.destroy()
  }
})

test('mastra: files, and a sandbox that rests and comes back by its name', async () => {
  const id = `mastra-${Date.now()}`
  const own = mastra({ id })
  await own.start()
  try {
    await own.writeFiles([{ path: '/home/user/in/a.txt', content: 'one\n' }])
    await own.stop()
    const again = mastra({ id })
    await again.start()
    assert.equal((await again.executeCommand('cat', ['/home/user/in/a.txt'])).stdout, 'one\n')
    assert.equal((await again.getInfo()).status, 'running')
  } finally {
    const last = mastra({ id })
    await last.start()
    await last.destroy()
  }
})

test('mastra: a workspace', async () => {
  const workspace = new Workspace({ sandbox: mastra() })
  await workspace.init()
  try {
    const done = await workspace.sandbox.executeCommand('pwd')
    assert.equal(done.stdout, '/home/user\n')
  } finally {
    await workspace.destroy()
  }
})
