// Package buildinfo says which build this is.
package buildinfo

import "runtime/debug"

// version is set by the linker: -X …/internal/platform/buildinfo.version=v1.2.3.
var version = ""

// Version is the version of this build: what the linker was told, else the module's version, else
// "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
