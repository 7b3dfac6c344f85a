// Package skills holds the skills that are compiled into the program.
package skills

import "embed"

// FS has one folder below public/ for each skill.
//
//go:embed all:public
var FS embed.FS
