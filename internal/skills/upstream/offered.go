package upstream

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// offered is a skill as a server lists it.
type offered struct {
	server    string
	front     json.RawMessage // its frontmatter, which SKILL.md has to have
	resources []resource      // all of its files, SKILL.md among them
	skill     sandbox.Skill
}

// resource is a file of a skill as a server lists it.
type resource struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
	path   string // relative to the skill's folder
}

// maxDescription bounds what a server puts into the prompts of others; the standard has this bound.
const maxDescription = 1024

// read reads the lists of servers. A skill that breaks the rules of the extension is not offered.
func read(items []sandbox.UpstreamItem) []offered {
	var list []offered
	for _, it := range items {
		if o, err := parse(it); err == nil {
			list = append(list, o)
		}
	}
	return list
}

func parse(it sandbox.UpstreamItem) (o offered, err error) {
	var raw struct {
		URI         string          `json:"uri"`
		Frontmatter json.RawMessage `json:"frontmatter"`
		Resources   []resource      `json:"resources"`
	}
	var front struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Hidden      bool   `json:"disable-model-invocation"`
	}
	if err := errors.Join(json.Unmarshal(it.Raw, &raw), json.Unmarshal(raw.Frontmatter, &front)); err != nil {
		return o, err
	}
	base, ok := strings.CutSuffix(raw.URI, "/"+skillFile)
	last := base[strings.LastIndexByte(base, '/')+1:]
	switch {
	case !ok || !strings.HasPrefix(base, "skill://") || last != front.Name:
		return o, fmt.Errorf("%.200q is not skill://…/%.80s/%s", raw.URI, front.Name, skillFile)
	case format.CheckName(front.Name) != nil || strings.TrimSpace(front.Description) == "":
		return o, errors.New("it has no name or no description")
	case utf8.RuneCountInString(front.Description) > maxDescription:
		return o, fmt.Errorf("its description has more than %d characters", maxDescription)
	case len(raw.Resources) > maxFiles:
		return o, fmt.Errorf("more than %d files", maxFiles)
	}
	o = offered{server: it.Server, front: raw.Frontmatter, resources: raw.Resources, skill: sandbox.Skill{
		Name: it.Server + ":" + front.Name, Title: front.Name, Description: front.Description, Hidden: front.Hidden, Frontmatter: raw.Frontmatter,
		Category: sandbox.ServerCategory + it.Server, Location: raw.URI, Enabled: true,
	}}
	if _, err := o.folder(); err != nil {
		return o, err
	}
	return o, o.checkFiles(base + "/")
}

// checkFiles refuses lists whose files lie elsewhere, are too large, or do not have a SKILL.md.
func (o *offered) checkFiles(base string) error {
	size, seen := int64(0), map[string]bool{}
	for i := range o.resources {
		r := &o.resources[i]
		rest, inside := strings.CutPrefix(r.URI, base)
		p, err := url.PathUnescape(rest)
		if !inside || err != nil || !fs.ValidPath(p) || p == "." || seen[p] || r.Size < 0 {
			return fmt.Errorf("%.200q is no file of it", r.URI)
		}
		if size += r.Size; r.Size > maxBytes || size > maxBytes {
			return fmt.Errorf("more than %d bytes", maxBytes)
		}
		r.path, seen[p] = p, true
	}
	if !seen[skillFile] {
		return fmt.Errorf("no %s", skillFile)
	}
	return nil
}

// folder is the name of its folder in a sandbox.
func (o *offered) folder() (string, error) {
	name := sandbox.ServerSkillFolder(o.server, o.skill.Title)
	return name, format.CheckName(name)
}

// isAdded reports whether a skill of a thread is this one.
func (o *offered) isAdded(sk sandbox.Skill) bool {
	name, err := o.folder()
	return err == nil && sk.Name == name && sk.Category == o.skill.Category
}

// content is the file in an answer to resources/read. An error says what differs from the list.
func (r *resource) content(answer json.RawMessage) ([]byte, error) {
	var said struct {
		Contents []struct {
			Text *string `json:"text"`
			Blob string  `json:"blob"`
		} `json:"contents"`
	}
	if err := json.Unmarshal(answer, &said); err != nil || len(said.Contents) != 1 {
		return nil, errors.New("is not one text or blob")
	}
	var data []byte
	if text := said.Contents[0].Text; text != nil {
		data = []byte(*text)
	} else {
		var err error
		if data, err = base64.StdEncoding.DecodeString(said.Contents[0].Blob); err != nil {
			return nil, errors.New("is not base64")
		}
	}
	sum := sha256.Sum256(data)
	switch {
	case int64(len(data)) != r.Size:
		return nil, fmt.Errorf("has %d bytes, and %d are listed", len(data), r.Size)
	case "sha256:"+hex.EncodeToString(sum[:]) != r.Digest:
		return nil, errors.New("has another digest")
	}
	return data, nil
}

// sameFront reports an error when a SKILL.md has another frontmatter than the list.
func (o *offered) sameFront(text []byte) error {
	sk, _, err := format.Parse(o.skill.Title, text)
	if err != nil {
		return fmt.Errorf("its %s does not load", skillFile)
	}
	var listed, is any
	for into, raw := range map[*any]json.RawMessage{&listed: o.front, &is: sk.Frontmatter} {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(into); err != nil {
			return fmt.Errorf("its frontmatter is no JSON: %w", err)
		}
	}
	if !reflect.DeepEqual(listed, is) {
		return errors.New("its frontmatter is another one")
	}
	return nil
}
