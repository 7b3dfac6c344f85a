package app

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/template"
)

// baseImage is the image of the template "base", in the images folder.
const baseImage = "base"

// importTime bounds one import. An image of 1.4 GB takes half a minute on a disk of 100 MB/s.
const importTime = 10 * time.Minute

// importing makes the image of a template of what the images folder has: now, when a server is of no use without it,
// else at the first start of a sandbox, by what it returns. Nil: it is there, or there is nothing to copy.
func (r *templateReader) importing(ctx context.Context, store driver.ImageStore, t template.Template, image string) (func(context.Context) error, error) {
	if t.Name == r.cfg.DefaultTemplate || t.Image.OCI == baseImage {
		return nil, r.importImage(ctx, store, t, image)
	}
	if len(t.ImageSources(r.cfg.Images)) == 0 {
		return nil, nil
	}
	own, stop := context.WithCancel(context.Background())
	i := &imageImport{run: func() error {
		ctx, cancel := context.WithTimeout(own, importTime)
		defer cancel()
		return r.importImage(ctx, store, t, image)
	}, template: t.Name}
	r.closers.onClose(func() error { stop(); i.wg.Wait(); return nil })
	return i.wait, nil
}

// imageImport is an import that many starts wait for. It goes on when they do not any more.
type imageImport struct {
	run      func() error
	template string
	wg       sync.WaitGroup

	mu    sync.Mutex
	under chan struct{} // closed at the end of the import that is under way; nil when none is
	err   error
}

// wait imports the image when it is another by now, and waits for the end of that or of ctx.
func (i *imageImport) wait(ctx context.Context) error {
	i.mu.Lock()
	if i.under == nil {
		done := make(chan struct{})
		i.under = done
		i.wg.Go(func() {
			err := i.run()
			i.mu.Lock()
			i.err, i.under = err, nil
			i.mu.Unlock()
			close(done)
		})
	}
	done := i.under
	i.mu.Unlock()
	select {
	case <-done:
		i.mu.Lock()
		defer i.mu.Unlock()
		return i.err
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "the image of template %q is being imported; try again in a minute", i.template)
	}
}

// importImage hands the driver what the images folder has of a template, when the driver has not made an image of it
// yet, or it is another by now. A template without any uses the image that the driver has.
func (r *templateReader) importImage(ctx context.Context, store driver.ImageStore, t template.Template, image string) error {
	for _, source := range t.ImageSources(r.cfg.Images) {
		if _, err := os.Stat(source); err != nil {
			continue
		}
		began := time.Now()
		imported, err := store.ImportImage(ctx, image, source)
		if imported {
			r.log.Info("imported an image", "template", t.Name, "image", image, "source", source, "took", time.Since(began).Round(time.Millisecond))
		}
		return err
	}
	return nil
}
