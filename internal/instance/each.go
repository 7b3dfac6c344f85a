package instance

import "sync"

// eachParallel is how many instances are looked at side by side.
const eachParallel = 8

// Each calls do for all instances that are ready and wanted, some side by side, and waits for all.
func Each(all []*Instance, wanted func(*Instance) bool, do func(*Instance)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, eachParallel)
	for _, inst := range all {
		if !inst.IsReady() || inst.Ending() != "" || !wanted(inst) {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			do(inst)
		})
	}
}
