import assert from 'node:assert/strict'
import test from 'node:test'
import { tool } from '@langchain/core/tools'
import { createBashExecutionTool, createCodeExecutionTool, createProgrammaticToolCallingTool } from '@librechat/agents'

const base = process.env.LIBRECHAT_CODE_BASEURL
const authHeaders = {} // the server of scripts/clients.sh asks for none

// LibreChat's own server uploads and downloads; the requests are those of its api/server/services/Files/Code.
async function upload(name, text) {
  const form = new FormData()
  form.append('kind', 'user')
  form.append('id', 'ann')
  form.append('file', new Blob([text]), name)
  const res = await fetch(`${base}/upload`, { method: 'POST', headers: authHeaders, body: form })
  assert.equal(res.status, 200, await res.clone().text())
  const got = await res.json()
  assert.equal(got.message, 'success')
  return { id: got.files[0].fileId, resource_id: 'ann', storage_session_id: got.storage_session_id, name: got.files[0].filename, kind: 'user' }
}

async function download(file) {
  const res = await fetch(`${base}/download/${file.storage_session_id}/${file.id}?kind=user&id=ann`, { headers: authHeaders })
  return { status: res.status, text: await res.text() }
}

// The agents' ToolNode calls a tool so: the files of the session come beside the arguments.
function invoke(tool, args, files = []) {
  return tool.invoke({ name: tool.name, args, id: 'call', type: 'tool_call', _injected_files: files })
}

test('a file is uploaded, worked on by code in two languages, and downloaded', async () => {
  const code = createCodeExecutionTool({ user_id: 'ann', authHeaders })
  const table = await upload('table.csv', 'a,b\n1,2\n')
  const first = await invoke(code, { lang: 'py', code: "text = open('/mnt/data/table.csv').read()\nopen('/mnt/data/sum.txt', 'w').write('3')\nprint(len(text))" }, [table])
  assert.match(first.content, /stdout:\n8\n/)
  assert.match(first.content, /1 persisted file/)
  const [sum] = first.artifact.files
  assert.equal(sum.name, 'sum.txt')
  assert.deepEqual(await download(sum), { status: 200, text: '3' })
  const bash = createBashExecutionTool({ user_id: 'ann', authHeaders })
  const second = await invoke(bash, { command: 'cat /mnt/data/table.csv /mnt/data/sum.txt; mkdir -p /mnt/data/out && echo done > /mnt/data/out/a.txt' }, [table, sum])
  assert.match(second.content, /a,b\n1,2\n3/)
  assert.equal(second.artifact.session_id, first.artifact.session_id)
  assert.deepEqual(second.artifact.files.map((f) => f.name), ['out/a.txt'])
  assert.deepEqual(await download(second.artifact.files[0]), { status: 200, text: 'done\n' })
})

test('files of another conversation come along', async () => {
  const bash = createBashExecutionTool({ authHeaders })
  const [one, two] = [await upload('one.txt', 'one'), await upload('two.txt', 'two')]
  const got = await invoke(bash, { command: 'cat one.txt two.txt' }, [one, two])
  assert.match(got.content, /onetwo/)
})

test('a run that fails says so to the model', async () => {
  const code = createCodeExecutionTool({ authHeaders })
  assert.match((await invoke(code, { lang: 'py', code: 'raise SystemExit(3)' })).content, /exit code is 3/)
  assert.match((await invoke(code, { lang: 'py', code: '1/0' })).content, /ZeroDivisionError/)
  assert.match((await invoke(code, { lang: 'js', code: 'console.log(6 * 7)' })).content, /42/)
  assert.match((await invoke(code, { lang: 'bash', code: 'echo "$1-$2"', args: ['a b', 'c'] })).content, /a b-c/)
  await assert.rejects(invoke(code, { lang: 'f90', code: 'end' }), /does not run here/)
})

test('a file that is gone is asked for again', async () => {
  const code = createCodeExecutionTool({ authHeaders })
  const file = { id: 'x'.repeat(21), storage_session_id: 'y'.repeat(21), name: 'gone.txt', kind: 'user', resource_id: 'ann' }
  await assert.rejects(invoke(code, { lang: 'py', code: 'print(1)' }, [file]), /upload it again/)
})

test('code calls tools of LibreChat in rounds, and what it prints comes at the end', async () => {
  const program = createProgrammaticToolCallingTool({ authHeaders })
  const weather = tool(async ({ city }) => JSON.stringify({ city, degrees: city === 'SF' ? 15 : 5 }), { name: 'get-weather', description: 'Weather', schema: { type: 'object', properties: { city: { type: 'string' } } } })
  const fail = tool(async () => { throw new Error('no such place') }, { name: 'fail', description: 'Fails', schema: { type: 'object', properties: {} } })
  const call = (code, extra = {}) => program.invoke({
    name: program.name, args: { code }, id: 'call', type: 'tool_call', toolMap: new Map([['get-weather', weather], ['fail', fail]]),
    toolDefs: [{ name: 'get-weather', description: 'Weather' }, { name: 'fail', description: 'Fails' }], ...extra,
  })
  const got = await call(`
sf, ny = await asyncio.gather(get_weather(city="SF"), get_weather(city="NY"))
print(sf["degrees"] + ny["degrees"])
for city in ["a", "b", "c"]:
    print((await get_weather(city=city))["city"])
try:
    await fail()
except Exception as e:
    print("caught", e)
open("/mnt/data/report.txt", "w").write("made")
`)
  assert.match(got.content, /stdout:\n20\na\nb\nc\ncaught no such place/)
  assert.deepEqual(got.artifact.files.map((f) => f.name), ['report.txt'])
  assert.match((await call('1/0')).content, /File "main.py", line 1[\s\S]*ZeroDivisionError/)
})
