// E2B's own JavaScript SDK against a server that wants keys ($RED and $BLUE, of two tenants): without one nothing works, and each shows what is
// its own.
import assert from "node:assert/strict";
import { AuthenticationError, NotFoundError } from "e2b";
import { Sandbox } from "@e2b/code-interpreter";

const { RED, BLUE } = process.env;
const box = await Sandbox.create({ timeoutMs: 600_000, apiKey: RED, metadata: { of: "red" } });
try {
  await box.files.write("ink.txt", "red");
  assert.equal((await box.commands.run("cat ink.txt")).stdout, "red");
  assert.equal((await box.runCode("6 * 7")).text, "42");
  for (const apiKey of ["e2b_00", "e2b_" + Buffer.from("sk_" + "0".repeat(64)).toString("hex")]) {
    await assert.rejects(Sandbox.create({ apiKey }), AuthenticationError);
    await assert.rejects(Sandbox.connect(box.sandboxId, { apiKey }), AuthenticationError);
    await assert.rejects(Sandbox.list({ apiKey }).nextItems(), AuthenticationError);
    await assert.rejects(Sandbox.kill(box.sandboxId, { apiKey }), AuthenticationError);
  }
  await assert.rejects(Sandbox.connect(box.sandboxId, { apiKey: BLUE }), NotFoundError);
  assert.deepEqual(await Sandbox.list({ apiKey: BLUE }).nextItems(), []);
  assert.equal(await Sandbox.kill(box.sandboxId, { apiKey: BLUE }), false);
  assert.deepEqual((await Sandbox.list({ apiKey: RED }).nextItems()).map((s) => s.sandboxId), [box.sandboxId]);
  assert.equal(await (await Sandbox.connect(box.sandboxId, { apiKey: RED })).files.read("ink.txt"), "red");
} finally {
  assert.equal(await box.kill(), true);
}
console.log("done");
