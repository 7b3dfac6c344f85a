package format

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// NameOf says what a skill from an archive is called: as the folder that the archive has around everything, or,
// when wrapper is "", as its SKILL.md says. Invalid when neither is a name.
func NameOf(wrapper string, manifest []byte) (string, error) {
	if wrapper != "" {
		return wrapper, CheckName(wrapper)
	}
	front, _, err := ReadFront(manifest)
	if err != nil {
		return "", err
	}
	name, ok := front.Fields["name"].(string)
	if !ok || CheckName(name) != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "the skill has no name: give SKILL.md one of letters, digits and -, or put a folder of that name around everything in the archive")
	}
	return name, nil
}
