package packs

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// Cut ends the stream of a pack, as a lost connection does.
func (r *Registry) Cut(id string) {
	for _, p := range r.all() {
		if p.key.id == id {
			p.session.end(sandbox.Errorf(sandbox.Unavailable, "its connection ended"))
		}
	}
}
