// Package helm holds the chart by which Skerry is installed on Kubernetes, in the folder skerry, and its tests. They also write what is
// generated: `go test ./deploy/helm -update` makes README.md's tables, the descriptions of values.schema.json, images.txt and the golden
// renderings anew.
package helm
