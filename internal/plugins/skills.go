package plugins

import (
	"path"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// Dir is where a plugin's folder is in a sandbox.
func Dir(name string) string { return sandbox.PluginsDir + "/" + name }

// loadSkills reads the folders below skills/, and the ones that the manifest names.
func (l *loader) loadSkills() {
	seen := map[string]string{}
	if l.isDir("skills") && !l.listed {
		l.skillsBelow("skills", seen)
	}
	if _, ok := l.fields["skills"]; ok && l.p.Format == FormatClaude {
		for _, p := range l.paths("skills") {
			switch {
			case l.isFile(path.Join(p, skillFile)):
				l.skill(p, seen)
			case l.isDir(p):
				l.skillsBelow(p, seen)
			default:
				l.add("missing", sandbox.SeverityError, l.manifest, "skills: there is no folder %.200q", p)
			}
		}
		return
	}
	if len(l.p.Skills) == 0 && l.p.Format == FormatClaude && !l.listed && !l.isDir("skills") && l.isFile(skillFile) {
		l.skill(".", seen)
	}
}

// skillsBelow reads every folder in dir that has a SKILL.md.
func (l *loader) skillsBelow(dir string, seen map[string]string) {
	for _, e := range l.entries(dir) {
		folder := path.Join(dir, e.Name())
		if e.Name()[0] == '.' || !l.isDir(folder) {
			continue
		}
		if !l.isFile(path.Join(folder, skillFile)) {
			l.add("no-skill", sandbox.SeverityWarning, folder, "the folder has no %s", skillFile)
			continue
		}
		if !l.skill(folder, seen) {
			return
		}
	}
}

// skill reads the skill in folder. It reports false when there are too many.
func (l *loader) skill(folder string, seen map[string]string) bool {
	name := path.Base(folder)
	if folder == "." {
		name = l.p.Name
	}
	if first, ok := seen[name]; ok {
		if first != folder {
			l.add("skill-twice", sandbox.SeverityWarning, folder, "there is a skill %.80q already, in %.200s; this one is ignored", name, first)
		}
		return true
	}
	if len(l.p.Skills) == maxSkills {
		l.add("too-many", sandbox.SeverityError, path.Dir(folder), "more than %d skills; the rest is ignored", maxSkills)
		return false
	}
	file := path.Join(folder, skillFile)
	text, err := l.read(file, format.MaxTextBytes)
	if err != nil {
		l.add("unreadable", sandbox.SeverityError, file, "%s", detail(err))
		return true
	}
	sk, findings, _ := format.Parse(name, text) // its error is one of the findings, and Broken
	for _, f := range findings {
		f.File = path.Join(folder, f.File)
		l.found(f)
	}
	seen[name] = folder
	sk.Category = sandbox.PluginCategory + l.p.Name
	sk.Location = path.Join(Dir(l.p.Name), file)
	l.p.Skills = append(l.p.Skills, Skill{Skill: sk, Folder: folder})
	return true
}
