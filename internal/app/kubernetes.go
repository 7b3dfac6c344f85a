package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
	"github.com/skerry-sandbox/skerry/internal/template"
)

// openKubernetes has sandboxes be pods.
func openKubernetes(ctx context.Context, cfg config.Config, log *slog.Logger) (driver.Driver, error) {
	o, err := KubernetesOptions(cfg, log)
	if err != nil {
		return nil, err
	}
	if o.Authority, err = authority(ctx, cfg); err != nil {
		return nil, err
	}
	d, err := kubernetes.New(o)
	if err != nil {
		return nil, err // says which driver
	}
	if _, err := d.Capabilities(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("driver kubernetes, namespace %s: %w", o.Namespace, err), d.Close())
	}
	if !o.Claims {
		return d, nil
	}
	problem, err := d.ClaimsProblem(ctx)
	switch {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("driver kubernetes, namespace %s: %w", o.Namespace, err), d.Close())
	case problem != "":
		return nil, errors.Join(fmt.Errorf("driver kubernetes: a template has kubernetes.claim, and %s", problem), d.Close())
	}
	return d, nil
}

// KubernetesOptions are the driver's options by the configuration.
func KubernetesOptions(cfg config.Config, log *slog.Logger) (kubernetes.Options, error) {
	c := cfg.Kubernetes
	cluster, namespace, err := kubernetes.Connect(c.Kubeconfig)
	if err != nil {
		return kubernetes.Options{}, err
	}
	templates, err := TemplateFiles(cfg)
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
		Claims:  claims, Unpoliced: c.Unpoliced, ProveClosed: true, StartTimeout: cfg.StartTimeout, Log: log,
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
