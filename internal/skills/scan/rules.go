package scan

import (
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// rule is one thing to look for in a line.
type rule struct {
	name     string
	hints    []string         // in lower case; the pattern is tried only when one of them is in the line
	pattern  *regexp.Regexp   // linear in the line: RE2
	unless   *regexp.Regexp   // takes an honest use out; nil: none
	severity map[where]string // "" = no finding there
	quoted   bool             // in quotation marks it counts as in a code block
	message  string
}

func (r *rule) hinted(lower string) bool {
	for _, h := range r.hints {
		if strings.Contains(lower, h) {
			return true
		}
	}
	return false
}

const (
	e = sandbox.SeverityError
	w = sandbox.SeverityWarning
)

// How bad something is where. A document may speak of what a script must not do.
var (
	everywhere = map[where]string{inCode: e, inProse: e, inFence: e}
	inScripts  = map[where]string{inCode: e, inProse: w, inFence: w}
	inSentence = map[where]string{inCode: w, inProse: e, inFence: w}
	suspicious = map[where]string{inCode: w, inProse: w, inFence: w}
)

func re(pattern string) *regexp.Regexp { return regexp.MustCompile(pattern) }

// shell is what runs a text that is piped into it.
const shell = `(?:sudo\s+(?:-\S+\s+)*)?(?:env\s+)?(?:/\S*/)?(?:ba|z|da|k|fi)?sh\b|(?:sudo\s+)?(?:/\S*/)?(?:python[0-9.]*|perl|ruby|node|php|bun|deno)\b`

var rules = []rule{
	// Words to the agent.
	{"prompt-override", []string{"instruction", "prompt", "rules", "guideline"},
		re(`(?i)\b(?:ignore|disregard|forget|override|bypass)\s+(?:all\s+|any\s+|the\s+|your\s+|of\s+|every\s+)*(?:previous|prior|above|earlier|preceding|existing|original|system|safety)\s+(?:\w+\s+)?(?:instructions?|prompts?|rules|guidelines|messages?)\b`),
		nil, inSentence, true, "tells the agent to drop its instructions"},
	{"prompt-override", []string{"system prompt", "safety"},
		re(`(?i)\b(?:reveal|print|output|repeat|leak|send|disclose)\s+(?:\w+\s+){0,3}system\s+prompt\b|\b(?:disable|turn\s+off|remove)\s+(?:all\s+|your\s+|any\s+)+(?:safety|guardrails?|filters?)\b`),
		nil, suspicious, true, "asks for the system prompt, or to turn safety off"},
	{"role-play", []string{"you are now", "jailbreak", "developer mode", "dan mode", "do anything now"},
		re(`(?i)\byou\s+are\s+now\s+(?:in\s+)?(?:dan\b|developer\s+mode|jailbroken|unrestricted|free\s+from)|\bdo\s+anything\s+now\b|\bjailbreak\s+mode\b`),
		nil, inSentence, true, "tells the agent to be another one without rules"},
	{"conceal", []string{"user"},
		re(`(?i)\b(?:do\s+not|don't|never|without)\s+(?:tell(?:ing)?|inform(?:ing)?|notify(?:ing)?|alert(?:ing)?|mention(?:ing)?\s+(?:this|it|that)\s+to|show(?:ing)?\s+(?:this|it|that)\s+to)\s+(?:the\s+)?users?\b|\b(?:do\s+not|don't|never|without)\s+let(?:ting)?\s+(?:the\s+)?users?\s+(?:know|see|notice|find\s+out)\b|\b(?:hide|conceal)\s+(?:this|it|that|these)\s+from\s+(?:the\s+)?users?\b`),
		re(`(?i)tell(?:ing)?\s+(?:the\s+)?users?\s+(?:to|what|how|which|when|where|why|they)\b`), suspicious, true, "tells the agent to keep something from its user"},
	{"conceal", []string{"secretly"}, re(`(?i)\bsecretly\s+(?:send|upload|copy|read|run|execute|forward)\b`), nil, suspicious, true, "tells the agent to do something in secret"},
	{"chat-markup", []string{"<|im_start|>", "<|system|>", "[inst]", "<<sys>>", "<system>", "<|start_header_id|>", "</system>"},
		re(`(?i)<\|im_start\|>|<\|system\|>|\[INST\]|<<SYS>>|<\|start_header_id\|>|^\s*</?system>`), nil, suspicious, true, "has the markup of a conversation, as if another voice spoke"},
	{"agent-config", []string{".claude/settings", "dangerously", "bypasspermissions", "approval-mode", "--yolo"},
		re(`(?i)--dangerously-skip-permissions|dangerouslyDisableSandbox|bypassPermissions|(?:>>?|tee|write|edit|modify)\s+\S*\.claude/settings|--yolo\b`), nil, suspicious, true, "turns the agent's own permissions off, or changes its settings"},
	{"image-exfiltration", []string{"!["}, re(`!\[[^\]]*\]\(https?://[^)\s]+[?&][^)\s=]+=(?:\{|\$|<|%7[bB])`), nil, suspicious, false, "an image whose address would carry data out"},

	// Code from elsewhere.
	{"pipe-to-shell", []string{"curl", "wget", "fetch", "iwr", "invoke-"},
		re(`(?i)\b(?:curl|wget|fetch)\b[^|;&#]*https?://[^|;&]*\|\s*(?:` + shell + `)|\b(?:` + `sh|bash|zsh` + `)\s+-c\s+["']?\$\(\s*(?:curl|wget)\b|\b(?:ba|z)?sh\s+<\(\s*(?:curl|wget)\b|\b(?:iwr|irm|invoke-webrequest|invoke-restmethod)\b[^|]*\|\s*(?:iex|invoke-expression)\b`),
		nil, inScripts, false, "runs what a web address answers, whatever that is today"},
	{"decode-and-run", []string{"base64", "atob", "b64decode", "fromhex", "decompress", "frombase64", "xxd", "rot13", "marshal"},
		re(`(?i)\bbase64\s+(?:-d|-D|--decode)\b[^|;]*\|\s*(?:` + shell + `)|\bxxd\s+-r\b[^|;]*\|\s*(?:` + shell + `)|\b(?:eval|exec|Function|system|popen)\s*\(\s*(?:\w+\s*\(\s*)*(?:[\w.]*b64decode|atob|Buffer\.from\s*\([^)]*base64|[\w.]*fromhex|[\w.]*decompress|marshal\.loads|__import__\(['"](?:base64|zlib|marshal))|\b(?:eval|exec)\s+["'$(` + "`" + `]*\s*(?:echo|printf)\b[^|]*\|\s*base64\s+(?:-d|--decode)|FromBase64String[^|]*\|\s*(?:iex|Invoke-Expression)`),
		nil, everywhere, true, "runs code that is encoded to hide it"},
	{"powershell-encoded", []string{"powershell", "pwsh"}, re(`(?i)\b(?:powershell|pwsh)(?:\.exe)?\b.*\s-e(?:nc|ncodedcommand)?\s+[A-Za-z0-9+/=]{40,}`), nil, everywhere, false, "runs code that is encoded to hide it"},
	{"obfuscated", []string{`\x`, "chr(", "fromcharcode"},
		re(`(?:\\x[0-9a-fA-F]{2}){24,}|(?:chr\(\d+\)\s*[+.]\s*){8,}|fromCharCode\(\s*(?:\d+\s*,\s*){12,}`), nil, map[where]string{inCode: w, inFence: w}, false, "text that is written to be hidden"},

	// Ways in and out.
	{"reverse-shell", []string{"/dev/tcp/", "/dev/udp/", "nc ", "ncat", "netcat", "socat", "dup2", "mkfifo", "pty.spawn", "fsockopen", "tcpclient"},
		re(`(?i)(?:>&|<>|<|>)\s*/dev/(?:tcp|udp)/|\b(?:nc|ncat|netcat)\b(?:\s+-\w+)*\s+-\w*[ec]\w*\s+(?:/bin/|/usr/bin/)?(?:ba|z|da)?sh\b|\b(?:nc|ncat|netcat)\b.*--(?:sh-)?exec\b|\bsocat\b.*\bexec:|os\.dup2\s*\(\s*\w+\.fileno\(\)|\bmkfifo\b.*\|\s*(?:nc|ncat|netcat)\b|fsockopen\s*\(.*\b(?:exec|proc_open|shell_exec)\b|\bpty\.spawn\s*\(\s*["']/bin/(?:ba)?sh`),
		nil, everywhere, true, "opens a shell to another machine"},
	{"metadata-address", []string{"169.254.169.254", "169.254.170.2", "metadata.google.internal", "100.100.100.200", "fd00:ec2::254", "0xa9fea9fe", "2852039166"},
		re(`(?i)169\.254\.169\.254|169\.254\.170\.2\b|metadata\.google\.internal|100\.100\.100\.200|fd00:ec2::254|0xa9fea9fe|\b2852039166\b`),
		re(`169\.254\.(?:169\.254|170\.2)/\d`), inScripts, true, "asks the cloud's metadata service, which hands out credentials"},
	{"exfiltration", []string{"curl", "wget", "requests.post", "fetch(", "urlopen", "invoke-"},
		re("(?i)\\b(?:curl|wget)\\b.*(?:\\$\\(|`)\\s*(?:env|printenv|set|cat\\s+(?:~|\\$HOME|/etc|/root|/home|\\S*\\.env\\b))|\\b(?:env|printenv)\\s*\\|\\s*(?:base64[^|]*\\|\\s*)?(?:curl|wget|nc)\\b|\\bcurl\\b.*(?:-d|--data\\S*|-F|-T|--upload-file)\\s*\\S*@?(?:~|\\$HOME)/\\.(?:ssh|aws|netrc|config|kube|gnupg|docker)|requests\\.(?:post|get|put)\\(.*\\b(?:os\\.environ\\b(?:\\s*[,)]|\\.copy)|dict\\(os\\.environ)|JSON\\.stringify\\(process\\.env\\)"),
		nil, everywhere, true, "sends the environment or credentials away"},
	{"drop-address", []string{"webhook.site", "requestbin", "pipedream.net", "ngrok", "burpcollaborator", "oast.", "interact.sh", "discord", "telegram", "transfer.sh", "hooks.slack.com", "requestcatcher", "beeceptor"},
		re(`(?i)\b(?:webhook\.site|requestbin\.\w+|[\w-]+\.m\.pipedream\.net|[\w-]+\.ngrok(?:-free)?\.(?:io|app|dev)|burpcollaborator\.net|oast\.(?:pro|live|site|online|fun|me)|interact\.sh|transfer\.sh|requestcatcher\.com|[\w-]+\.beeceptor\.com)\b|discord(?:app)?\.com/api/webhooks/\d{6,}|api\.telegram\.org/bot\d{6,}|hooks\.slack\.com/services/T[A-Z0-9]{6,}/`),
		nil, suspicious, false, "an address that accepts data from any sender"},
	{"bare-address", []string{"http://", "https://"},
		re(`https?://(?:\d{1,3}\.){3}\d{1,3}\b`), re(`https?://(?:127\.|0\.0\.0\.0|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|192\.0\.2\.|198\.51\.100\.|203\.0\.113\.|169\.254\.|1\.2\.3\.4)`), suspicious, false, "an address without a name: its owner is unknown"},

	// Things of the user.
	{"credential-file", []string{".ssh", ".aws/", ".netrc", ".kube/config", "etc/shadow", ".gnupg", "login data", ".docker/config", "authorized_keys", "id_rsa", "id_ed25519"},
		re(`(?i)(?:\b(?:cat|cp|scp|tar|zip|base64|less|head|tail|open|read\w*|rsync)\b|\bPath\b|<)[^#\n]{0,40}(?:~|\$\{?HOME\}?|/root|/home/\w+|expanduser\(["']~|%USERPROFILE%)[/\\]?\.?(?:/?\.ssh/(?:id_|\*)|/?\.ssh\b|/?\.aws/credentials|/?\.netrc|/?\.kube/config|/?\.gnupg|/?\.docker/config\.json)|\b(?:cat|cp|read)\b\s+/etc/shadow\b`),
		re(`(?i)\.ssh/\w+\.pub\b`), inScripts, true, "reads keys or passwords of the user"},
	{"ssh-write", []string{".ssh", "authorized_keys"},
		re(`(?i)(?:>>?|tee\s+(?:-a\s+)?|cp\s+\S+\s+|mv\s+\S+\s+|ssh-copy-id)\s*["']?(?:~|\$\{?HOME\}?|/root|/home/\w+)/\.ssh/|>>?\s*\S*authorized_keys\b|open\([^)]*(?:\.ssh/|authorized_keys)[^)]*["'][aw]`), nil, inScripts, true, "writes into ~/.ssh, which lets others in"},
	{"persistence", []string{".bashrc", ".zshrc", ".profile", ".bash_profile", "crontab", "launchctl", "systemctl", "/etc/cron", "launchagents", "currentversion\\run"},
		re(`(?i)(?:>>|tee\s+-a)\s*["']?(?:~|\$\{?HOME\}?)/\.(?:bashrc|zshrc|profile|bash_profile|zprofile)\b|\|\s*crontab\s+-|(?:>>?|tee)\s*\S*/etc/cron|\blaunchctl\s+load\b|\bsystemctl\s+(?:--user\s+)?enable\b|CurrentVersion\\Run\b`), nil, suspicious, true, "makes something run again later, after the skill is gone"},
	{"destroy", []string{"rm ", "mkfs", "dd ", ":|:", "shutil.rmtree", "no-preserve-root", "/dev/sd", "/dev/nvme", "rimraf"},
		re(`(?i)\brm\s+(?:-\w+\s+|--\S+\s+)*-(?:\w*r\w*f|\w*f\w*r)\w*\s+(?:--\S+\s+)*["']?(?:/\*?|~/?\*?|\$\{?HOME\}?/?\*?)["']?(?:\s|;|&|\||\)|$)|--no-preserve-root|\bmkfs(?:\.\w+)?\s+/dev/|\bdd\b.*\bof=/dev/(?:sd|nvme|hd|vd|disk)|:\(\)\s*\{\s*:\|:&\s*\}\s*;|shutil\.rmtree\(\s*(?:["'](?:/|~)["']|Path\.home\(\)\s*[,)]|os\.path\.expanduser\(["']~["']\))|>\s*/dev/(?:sd[a-z]|nvme\d)`),
		nil, inScripts, true, "destroys the files of a user or a machine"},
	{"privilege", []string{"sudoers", "chmod", "setuid", "nopasswd"},
		re(`(?i)\bNOPASSWD\s*:|(?:>>?|tee)\s*(?:-a\s+)?/etc/sudoers|\bchmod\s+(?:-\S+\s+)*(?:[ugo]*\+s|[2467][0-7]{3})\s|\bchmod\s+-R\s+0?777\s+/(?:\s|$)`), nil, suspicious, true, "grants rights that last"},
}
