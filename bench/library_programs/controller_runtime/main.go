// The controller of bench/library.py on controller-runtime, in its usual style: each ConfigMap of a
// namespace gets an annotation with a value from its data.
package main

import (
	"context"
	"flag"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const annotation = "bench.example.com/value"

type copier struct{ client.Client }

func (c copier) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var object corev1.ConfigMap
	if err := c.Get(ctx, request.NamespacedName, &object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	value := object.Data["value"]
	if object.Annotations[annotation] == value {
		return ctrl.Result{}, nil
	}
	body := []byte(`{"metadata":{"annotations":{"` + annotation + `":"` + value + `"}}}`)
	return ctrl.Result{}, c.Patch(ctx, &object, client.RawPatch(types.MergePatchType, body))
}

func main() {
	namespace := flag.String("namespace", "", "where the objects are")
	workers := flag.Int("workers", 1, "how many reconciles at the same time")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}},
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		panic(err)
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: *workers}).
		Complete(copier{manager.GetClient()})
	if err != nil {
		panic(err)
	}
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		panic(err)
	}
}
