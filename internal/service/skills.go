package service

import (
	"context"
	"mime"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxSkillFileText is the longest text of a skill's file that is given as text; a longer one is given by its
// place in the sandbox.
const maxSkillFileText = 1 << 20

// SkillFile is a file of a skill. Without text it is binary, or longer than 1 MiB.
type SkillFile struct {
	Path     string  `json:"path" doc:"Relative to the skill's folder"`
	Location string  `json:"location" doc:"In the sandbox"`
	Bytes    int     `json:"bytes"`
	MIME     string  `json:"mime"`
	Text     *string `json:"text,omitempty" doc:"Not there when the file is binary, or longer than 1 MiB: use it in the sandbox"`
}

// FoundSkills is the answer of a search.
type FoundSkills struct {
	Query      string               `json:"query"`
	MatchCount int                  `json:"match_count"`
	Skills     []sandbox.SkillFound `json:"skills" doc:"At most 15, best first"`
}

// ReadSkillFile returns a file of a skill. NotFound: no such skill or file.
func ReadSkillFile(ctx context.Context, s ThreadSkills, c sandbox.Caller, thread, skill, file string) (SkillFile, error) {
	m, err := s.SkillManifest(ctx, c, thread, skill)
	if err != nil {
		return SkillFile{}, err
	}
	data, err := s.SkillFile(ctx, c, thread, m.Name, file)
	if err != nil {
		return SkillFile{}, err
	}
	f := SkillFile{Path: file, Location: path.Join(path.Dir(m.Location), file), Bytes: len(data), MIME: MIMEOf(file, data)}
	if len(data) <= maxSkillFileText && utf8.Valid(data) {
		text := string(data)
		f.Text = &text
	}
	return f, nil
}

// MIMEOf returns the MIME type of a file by its name, else by its content.
func MIMEOf(name string, data []byte) string {
	switch t := mime.TypeByExtension(path.Ext(name)); {
	case strings.HasSuffix(name, ".md"):
		return "text/markdown"
	case t != "":
		return t
	case utf8.Valid(data):
		return "text/plain"
	}
	return "application/octet-stream"
}
