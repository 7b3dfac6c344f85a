package threadevents

import (
	"strconv"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// position is the place of a follower, which the ids of events carry: the feed, the number of the last event in it, and the
// versions that the follower was told.
type position struct {
	epoch    string
	n        uint64
	versions sandbox.ThreadVersions
}

// maxPosition bounds an id. Ours are shorter.
const maxPosition = 200

// String writes the position as the id of an event.
func (p position) String() string {
	return p.epoch + "." + strconv.FormatUint(p.n, 10) + "." + p.versions.Tools + "." + p.versions.Skills + "." + p.versions.Prompt
}

// parsePosition reads the id of an event. What is no id of ours is a position in no feed, whose versions are unknown: the
// stream begins with a reset.
func parsePosition(text string) position {
	parts := strings.Split(text, ".")
	if len(text) > maxPosition || len(parts) != 5 {
		return position{}
	}
	n, err := strconv.ParseUint(parts[1], 10, 63)
	if err != nil {
		return position{}
	}
	for _, version := range parts[2:] { // they are sent back
		if strings.Trim(version, "0123456789abcdef") != "" {
			return position{}
		}
	}
	return position{epoch: parts[0], n: n, versions: sandbox.ThreadVersions{Tools: parts[2], Skills: parts[3], Prompt: parts[4]}}
}
