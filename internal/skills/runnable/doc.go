// Package runnable says whether a skill can run in a template: it reads from the skill's folder what the
// skill needs, probes once what a sandbox of the template has, and compares.
//
// Read collects needs from scripts (imports, programs they start, #! lines, PEP 723 headers), from
// requirements.txt, pyproject.toml and package.json, and from what SKILL.md and its references tell an agent
// to run: code blocks and code in the text. It runs nothing. What it cannot tell, it says as a doubt.
//
// A verdict is "no" when something is missing, else "unknown" when there is a doubt, else "yes". So a skill
// of pure instructions is "yes", and what only names connectors or MCP tools needs nothing of the sandbox.
// Sandboxes have no network: a skill that fetches from a host outside is "no", with that host as missing.
// What an instruction says to install counts as needed, because there it cannot be installed.
//
// Locks: Prober.mu guards what was read of skills and of images, and is held for a look at a map. No image is probed, and no
// file is read, while it is held.
package runnable
