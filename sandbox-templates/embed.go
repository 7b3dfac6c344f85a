// Package sandboxtemplates carries the templates of this folder in the program, so that a server
// runs without any file beside it.
package sandboxtemplates

import "embed"

// FS holds the *.yaml files of this folder.
//
//go:embed *.yaml
var FS embed.FS
