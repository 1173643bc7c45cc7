// examples/controllers/shared_configuration.py on controller-runtime.
package main

import (
	"context"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"librarybench/sharedconfiguration/api"
)

const sharedLabel = "example.com/shared"

// +kubebuilder:rbac:groups=example.com,resources=sharedconfigurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=example.com,resources=sharedconfigurations/status,verbs=patch
// +kubebuilder:rbac:groups=example.com,resources=sharedconfigurations/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps;secrets,verbs=get;list;watch;create;update;delete

type copies struct {
	client.Client
	scheme *runtime.Scheme
}

func (c *copies) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var config api.SharedConfiguration
	if err := c.Get(ctx, request.NamespacedName, &config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if config.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&config.Spec.Namespaces)
	if err != nil {
		return ctrl.Result{}, reconcile.TerminalError(err)
	}
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return ctrl.Result{}, err
	}
	targets := sets.New[string]()
	for _, each := range namespaces.Items {
		if each.DeletionTimestamp == nil && each.Name != config.Spec.Originals {
			targets.Insert(each.Name)
		}
	}
	var maps corev1.ConfigMapList
	if err := c.List(ctx, &maps); err != nil {
		return ctrl.Result{}, err
	}
	var secrets corev1.SecretList
	if err := c.List(ctx, &secrets); err != nil {
		return ctrl.Result{}, err
	}
	var objects []client.Object
	for i := range maps.Items {
		objects = append(objects, &maps.Items[i])
	}
	for i := range secrets.Items {
		objects = append(objects, &secrets.Items[i])
	}
	wanted := sets.New[string]()
	var refused []string
	for _, each := range objects {
		if each.GetNamespace() != config.Spec.Originals || each.GetLabels()[sharedLabel] != "original" {
			continue
		}
		for target := range targets {
			wanted.Insert(keyOf(each, target))
			if err := c.copy(ctx, &config, each, target); err != nil {
				if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || isOwned(err) {
					refused = append(refused, err.Error())
					continue
				}
				return ctrl.Result{}, err
			}
		}
	}
	for _, each := range objects {
		if metav1.IsControlledBy(each, &config) && !wanted.Has(keyOf(each, each.GetNamespace())) {
			if err := c.Delete(ctx, each); client.IgnoreNotFound(err) != nil {
				return ctrl.Result{}, err
			}
		}
	}
	return c.report(ctx, &config, wanted.Len(), refused)
}

func keyOf(object client.Object, namespace string) string {
	kind := "ConfigMap"
	if _, secret := object.(*corev1.Secret); secret {
		kind = "Secret"
	}
	return kind + "/" + namespace + "/" + object.GetName()
}

func isOwned(err error) bool {
	_, owned := err.(*controllerutil.AlreadyOwnedError)
	return owned
}

func (c *copies) copy(ctx context.Context, config *api.SharedConfiguration, original client.Object, namespace string) error {
	at := metav1.ObjectMeta{Namespace: namespace, Name: original.GetName()}
	switch from := original.(type) {
	case *corev1.ConfigMap:
		made := &corev1.ConfigMap{ObjectMeta: at}
		_, err := controllerutil.CreateOrUpdate(ctx, c.Client, made, func() error {
			made.Data, made.BinaryData = from.Data, from.BinaryData
			return c.mark(config, made)
		})
		return err
	case *corev1.Secret:
		made := &corev1.Secret{ObjectMeta: at}
		_, err := controllerutil.CreateOrUpdate(ctx, c.Client, made, func() error {
			made.Data, made.Type = from.Data, from.Type
			return c.mark(config, made)
		})
		return err
	}
	return nil
}

func (c *copies) mark(config *api.SharedConfiguration, made client.Object) error {
	marks := made.GetLabels()
	if marks == nil {
		marks = map[string]string{}
	}
	marks[sharedLabel] = "copy"
	made.SetLabels(marks)
	return controllerutil.SetControllerReference(config, made, c.scheme)
}

func (c *copies) report(ctx context.Context, config *api.SharedConfiguration, wanted int, refused []string) (ctrl.Result, error) {
	before := config.DeepCopy()
	condition := metav1.Condition{Type: "Copied", Status: metav1.ConditionTrue, Reason: "AllCopied"}
	result := ctrl.Result{}
	if len(refused) > 0 {
		text := strings.Join(refused, "; ")
		condition.Status, condition.Reason = metav1.ConditionFalse, "Refused"
		condition.Message = text[:min(len(text), 1000)]
		result.RequeueAfter = time.Minute
	}
	changed := meta.SetStatusCondition(&config.Status.Conditions, condition)
	if !changed && config.Status.Copies == wanted-len(refused) {
		return result, nil
	}
	config.Status.Copies = wanted - len(refused)
	return result, c.Status().Patch(ctx, config, client.MergeFrom(before))
}

func (c *copies) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var configs api.SharedConfigurationList
	if err := c.List(ctx, &configs); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for _, each := range configs.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: each.Name}})
	}
	return requests
}

func main() {
	ctrl.SetLogger(zap.New())
	setupLog := ctrl.Log.WithName("setup")
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(api.AddToScheme(scheme))
	present, err := labels.NewRequirement(sharedLabel, selection.Exists, nil)
	utilruntime.Must(err)
	selected := cache.ByObject{Label: labels.NewSelector().Add(*present)}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: selected,
			&corev1.Secret{}:    selected,
		}},
		HealthProbeBindAddress: ":8081",
	})
	if err != nil {
		setupLog.Error(err, "unable to create manager")
		os.Exit(1)
	}
	reconciler := &copies{manager.GetClient(), scheme}
	all := handler.EnqueueRequestsFromMapFunc(reconciler.all)
	err = ctrl.NewControllerManagedBy(manager).
		For(&api.SharedConfiguration{}).
		Watches(&corev1.Namespace{}, all).
		Watches(&corev1.ConfigMap{}, all).
		Watches(&corev1.Secret{}, all).
		Complete(reconciler)
	if err != nil {
		setupLog.Error(err, "unable to create controller")
		os.Exit(1)
	}
	utilruntime.Must(manager.AddHealthzCheck("healthz", healthz.Ping))
	utilruntime.Must(manager.AddReadyzCheck("readyz", healthz.Ping))
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		setupLog.Error(err, "problem running manager")
		os.Exit(1)
	}
}
