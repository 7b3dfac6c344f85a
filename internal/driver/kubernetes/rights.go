package kubernetes

// Right is one thing that the driver does at the API server. The chart's README says why.
type Right struct {
	Group, Resource, Verb string
	// Cluster: the resource is in no namespace. All others are in that of the sandboxes.
	Cluster bool
	// Claims: only with Options.Claims.
	Claims bool
	// Volumes: only where files of threads are on volumes.
	Volumes bool
}

// Rights are all that the driver may ask of the API server, besides what every account may (its version).
func Rights() []Right {
	var all []Right
	for _, r := range []struct {
		group, resource string
		verbs           []string
	}{
		{"", "pods", []string{"create", "get", "list", "watch", "patch", "delete"}},
		{"", "secrets", []string{"create"}},
		{"networking.k8s.io", "networkpolicies", []string{"list"}},
		{"", "persistentvolumeclaims", []string{"create", "get"}},
		{"node.k8s.io", "runtimeclasses", []string{"get"}},
		{claimGroup.Group, claimResource.Resource, []string{"create", "get", "list", "watch", "delete"}},
	} {
		for _, verb := range r.verbs {
			all = append(all, Right{
				Group: r.group, Resource: r.resource, Verb: verb, Cluster: r.resource == "runtimeclasses", Claims: r.group == claimGroup.Group, Volumes: r.resource == "persistentvolumeclaims",
			})
		}
	}
	return all
}
