package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
	"github.com/skerry-sandbox/skerry/internal/template"
)

// openKubernetes has sandboxes be pods.
func (p *App) openKubernetes(ctx context.Context) error {
	o, err := p.kubernetesOptions()
	if err != nil {
		return err
	}
	if o.Authority, err = p.authority(ctx); err != nil {
		return err
	}
	d, err := kubernetes.New(o)
	if err != nil {
		return err // says which driver
	}
	p.driver = d
	p.onClose(d.Close)
	if _, err := d.Capabilities(ctx); err != nil {
		return fmt.Errorf("driver kubernetes, namespace %s: %w", o.Namespace, err)
	}
	if !o.Claims {
		return nil
	}
	problem, err := d.ClaimsProblem(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("driver kubernetes, namespace %s: %w", o.Namespace, err)
	case problem != "":
		return fmt.Errorf("driver kubernetes: a template has kubernetes.claim, and %s", problem)
	}
	return nil
}

// kubernetesOptions are those of the configuration.
func (p *App) kubernetesOptions() (kubernetes.Options, error) {
	c := p.cfg.Kubernetes
	cluster, namespace, err := kubernetes.Connect(c.Kubeconfig)
	if err != nil {
		return kubernetes.Options{}, err
	}
	templates, err := p.templateFiles()
	if err != nil {
		return kubernetes.Options{}, err
	}
	claims := slices.ContainsFunc(templates, func(t template.Template) bool { return t.ClaimPool != "" })
	nodes := map[string]string{}
	for _, label := range c.NodeSelector {
		name, value, _ := strings.Cut(label, "=")
		nodes[name] = value
	}
	return kubernetes.Options{
		Config: cluster, Namespace: cmp.Or(c.Namespace, namespace), BridgeImage: c.BridgeImage,
		Pods: kubernetes.PodOptions{
			PullPolicy: corev1.PullPolicy(c.ImagePullPolicy), PullSecrets: c.ImagePullSecrets,
			NodeSelector: nodes, Tolerations: tolerations(c.Taints()), PriorityClass: c.PriorityClass, ServiceAccount: c.ServiceAccount,
		},
		RuntimeClasses: map[string]string{"runc": c.RuncClass, "runsc": c.RunscClass}, Seccomp: c.Seccomp,
		CPUShare: float64(c.CPUPercent) / 100, MemoryShare: float64(c.MemoryPercent) / 100,
		Volumes: kubernetes.VolumeOptions{StorageClass: c.VolumeClass, Size: c.VolumeSize, AccessMode: corev1.PersistentVolumeAccessMode(c.VolumeAccess)},
		Claims:  claims, Unpoliced: c.Unpoliced, ProveClosed: true, StartTimeout: p.cfg.StartTimeout, Log: p.log,
	}, nil
}

func tolerations(taints []config.Taint) []corev1.Toleration {
	var all []corev1.Toleration
	for _, t := range taints {
		one := corev1.Toleration{Key: t.Name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(t.Effect)}
		if t.Value != nil {
			one.Operator, one.Value = corev1.TolerationOpEqual, *t.Value
		}
		all = append(all, one)
	}
	return all
}
