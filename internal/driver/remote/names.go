package remote

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Metadata of the service's sandboxes.
const (
	metaInstall = "skerry-install" // fingerprint of the authority
	metaID      = "skerry-sandbox"
	metaSpec    = "skerry-spec" // remembered, in JSON
	metaLabel   = "skerry-label:"
)

// records say which sandboxes are this installation's, and keep what the service does not.
type records struct {
	install string // fingerprint of the authority
	dir     string
}

// remembered is what a later server has to know of a sandbox.
type remembered struct {
	UID    int            `json:"uid"`
	Limits sandbox.Limits `json:"limits"`
}

// metadata describes a sandbox to the service.
func (r *records) metadata(spec sandbox.Spec) (map[string]string, error) {
	text, err := json.Marshal(remembered{spec.UID, spec.Limits})
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be described")
	}
	out := map[string]string{metaInstall: r.install, metaID: string(spec.ID), metaSpec: string(text)}
	for name, value := range spec.Labels {
		out[metaLabel+name] = value
	}
	return out, nil
}

// recall reads what a sandbox was made from.
func recall(m made) (remembered, error) {
	var out remembered
	if err := json.Unmarshal([]byte(m.Metadata[metaSpec]), &out); err != nil {
		return out, sandbox.Wrap(sandbox.Internal, err, "sandbox %s does not tell what it was made from", m.Metadata[metaID])
	}
	return out, nil
}

// maxLabels bounds a file of labels.
const maxLabels = 256 << 10

// labels are those of the Spec, and what attachments have added.
func (r *records) labels(m made) (map[string]string, error) {
	out := map[string]string{}
	for name, value := range m.Metadata {
		if label, ok := strings.CutPrefix(name, metaLabel); ok {
			out[label] = value
		}
	}
	more, err := r.added(sandbox.ID(m.Metadata[metaID]))
	maps.Copy(out, more)
	return out, err
}

// added are the labels that attachments have added.
func (r *records) added(id sandbox.ID) (map[string]string, error) {
	_, text, err := lockedfile.Read(r.path(id, ".labels"), maxLabels)
	if errors.Is(err, fs.ErrNotExist) || err == nil && text == nil {
		return nil, nil
	}
	var out map[string]string
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the labels of sandbox %s cannot be read", id)
	}
	return out, nil
}

// add adds labels, durably.
func (r *records) add(id sandbox.ID, labels map[string]string) error {
	all, err := r.added(id)
	if err != nil {
		return err
	}
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, labels)
	text, err := json.Marshal(all)
	if err == nil {
		err = lockedfile.Replace(r.path(id, ".labels"), text)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the labels of sandbox %s cannot be written", id)
	}
	return nil
}

// forget takes away the files of a sandbox that is gone.
func (r *records) forget(id sandbox.ID) error {
	for _, suffix := range []string{".labels", ".lock"} {
		if err := os.Remove(r.path(id, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Wrap(sandbox.Internal, err, "what is remembered of sandbox %s cannot be removed", id)
		}
	}
	return nil
}

// mine is the metadata of the sandboxes of this installation, of those with one id, or of those with a label of many.
func (r *records) mine(id sandbox.ID, labels map[string]string) map[string]string {
	out := map[string]string{metaInstall: r.install}
	if id != "" {
		out[metaID] = string(id)
	}
	if install := labels[sandbox.LabelInstall]; install != "" { // never added later
		out[metaLabel+sandbox.LabelInstall] = install
	}
	return out
}

// path is a file of a sandbox in the folder of the driver. The id was checked.
func (r *records) path(id sandbox.ID, suffix string) string {
	return filepath.Join(r.dir, string(id)+suffix)
}
