package runnable

import (
	"path"
	"strings"
)

// installers read the command lines of package managers: what they are to install is what the skill needs.
// They report false for a command line that is about something else.
var installers = map[string]func(place, []string) bool{
	"pip": pipInstall, "pip3": pipInstall, "uv": uvCommand, "pipx": pipx, "uvx": uvx, "poetry": after(Python, "add"),
	"npm": npmCommand, "pnpm": npmCommand, "yarn": npmCommand, "npx": npx, "bunx": npx, "pnpx": npx, "bun": npmCommand,
	"conda": condaCommand, "mamba": condaCommand, "micromamba": condaCommand,
	"apt": after(System, "install"), "apt-get": after(System, "install"), "yum": after(System, "install"), "dnf": after(System, "install"),
	"apk": after(System, "add"), "brew": after(System, "install"), "choco": after(System, "install"), "winget": after(System, "install"), "pacman": after(System, "-S"),
	"gem": after(System, "install"), "cargo": after(System, "install"),
}

// plain are the words of a command line that are no options.
func plain(words []string, takesValue string) []string {
	var list []string
	skip := false
	for _, w := range words {
		switch {
		case skip:
			skip = false
		case strings.HasPrefix(w, "-"):
			skip = strings.Contains(" "+takesValue+" ", " "+w+" ")
		case w == "" || w == "X" || strings.HasPrefix(w, "$"):
		default:
			list = append(list, w)
		}
	}
	return list
}

// after needs the words behind a subcommand.
func after(kind Kind, sub string) func(place, []string) bool {
	return func(p place, words []string) bool {
		for i, w := range words {
			if w != sub {
				continue
			}
			for _, name := range plain(words[i+1:], "-t --target-release") {
				name, _, _ = strings.Cut(name, "=")
				if kind == Python {
					p.requirementLine(name)
				} else if base := path.Base(name); toolName.MatchString(base) {
					p.need(kind, base)
				}
			}
			return true
		}
		return false
	}
}

func pipInstall(p place, words []string) bool {
	if len(words) == 0 || words[0] != "install" {
		return false
	}
	for _, w := range plain(words[1:], "-r --requirement -c --constraint -i --index-url --extra-index-url -t --target -e --editable --prefix") {
		if w == "." || strings.Contains(w, "/") && !strings.Contains(w, "[") {
			continue
		}
		if w != "pip" && w != "setuptools" && w != "wheel" {
			p.requirementLine(w)
		}
	}
	return true
}

func uvCommand(p place, words []string) bool {
	switch {
	case len(words) > 1 && words[0] == "pip":
		return pipInstall(p, words[1:])
	case len(words) > 1 && (words[0] == "add" || words[0] == "tool" && words[1] == "install"):
		for _, w := range plain(words[1:], "") {
			if w != "install" {
				p.requirementLine(w)
			}
		}
		return true
	case len(words) > 1 && words[0] == "run":
		p.need(Command, "uv")
		for i, w := range words {
			if w == "--with" && i+1 < len(words) {
				p.requirementLine(words[i+1])
			}
		}
		shellReader{p}.scriptArguments(words)
		return true
	}
	return false
}

func pipx(p place, words []string) bool {
	if len(words) > 1 && (words[0] == "install" || words[0] == "run") {
		p.need(System, plainFirst(words[1:]))
		return true
	}
	return false
}

func uvx(p place, words []string) bool {
	p.need(System, plainFirst(words))
	return true
}

func plainFirst(words []string) string {
	if list := plain(words, "--from --python"); len(list) > 0 {
		return list[0]
	}
	return ""
}

func npmCommand(p place, words []string) bool {
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "install", "i", "add", "global", "ci":
		for _, w := range plain(words[1:], "--prefix --registry") {
			if w == "add" || strings.HasPrefix(w, ".") || strings.HasPrefix(w, "/") {
				continue
			}
			name, versions := npmName(w)
			p.needRange(Node, name, versions)
		}
		return true
	}
	return false
}

// npmName splits name@range; a scope begins with another @.
func npmName(word string) (name, versions string) {
	if i := strings.LastIndexByte(word, '@'); i > 0 {
		name, versions = word[:i], word[i+1:]
		if versions == "latest" || versions == "next" {
			versions = ""
		}
		return name, versions
	}
	return word, ""
}

func npx(p place, words []string) bool {
	name, _ := npmName(plainFirst(words))
	p.need(NodeCLI, name)
	return true
}

func condaCommand(p place, words []string) bool {
	if len(words) == 0 {
		return false
	}
	p.need(Command, "conda")
	if words[0] != "install" {
		return true
	}
	for _, w := range plain(words[1:], "-c --channel -n --name -p --prefix -f --file") {
		name, _, _ := strings.Cut(strings.Trim(w, `"'`), "=")
		if i := strings.IndexAny(name, "<> "); i >= 0 {
			name = name[:i]
		}
		if base := path.Base(name); toolName.MatchString(base) {
			p.need(System, base)
		}
	}
	return true
}
