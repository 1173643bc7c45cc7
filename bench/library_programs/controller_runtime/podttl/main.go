// examples/controllers/pod_ttl.py on controller-runtime.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const ttlLabel = "example.com/ttl"

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

type expiry struct {
	client.Client
	recorder record.EventRecorder
}

func (e *expiry) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := e.Get(ctx, request.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pod.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	text := pod.Labels[ttlLabel]
	ttl, err := time.ParseDuration(text)
	if err != nil {
		e.recorder.Event(&pod, corev1.EventTypeWarning, "InvalidTTL", fmt.Sprintf("label %s: %v", ttlLabel, err))
		return ctrl.Result{}, nil
	}
	if left := time.Until(pod.CreationTimestamp.Add(ttl)); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	e.recorder.Event(&pod, corev1.EventTypeNormal, "Expired", "deleted after "+text)
	preconditions := client.Preconditions{UID: &pod.UID}
	return ctrl.Result{}, client.IgnoreNotFound(e.Delete(ctx, &pod, preconditions))
}

func main() {
	ctrl.SetLogger(zap.New())
	setupLog := ctrl.Log.WithName("setup")
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		setupLog.Error(err, "unable to add to scheme")
		os.Exit(1)
	}
	present, err := labels.NewRequirement(ttlLabel, selection.Exists, nil)
	if err != nil {
		setupLog.Error(err, "unable to select")
		os.Exit(1)
	}
	selected := cache.ByObject{Label: labels.NewSelector().Add(*present)}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: selected}},
		HealthProbeBindAddress: ":8081",
		LeaderElection:         true,
		LeaderElectionID:       "pod-ttl",
	})
	if err != nil {
		setupLog.Error(err, "unable to create manager")
		os.Exit(1)
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Complete(&expiry{manager.GetClient(), manager.GetEventRecorderFor("pod-ttl")})
	if err != nil {
		setupLog.Error(err, "unable to create controller")
		os.Exit(1)
	}
	if err := manager.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		setupLog.Error(err, "unable to set up health check")
		os.Exit(1)
	}
	if err := manager.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		setupLog.Error(err, "unable to set up ready check")
		os.Exit(1)
	}
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		setupLog.Error(err, "problem running manager")
		os.Exit(1)
	}
}
