// Package skills is the commands below `skerry skills`: list, lint, pack, install and run.
package skills
