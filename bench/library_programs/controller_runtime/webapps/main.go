// examples/controllers/web_apps.py on controller-runtime.
package main

import (
	"context"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "librarybench/webapps/api/v1"
)

// +kubebuilder:rbac:groups=example.com,resources=webapps,verbs=get;list;watch
// +kubebuilder:rbac:groups=example.com,resources=webapps/status,verbs=patch
// +kubebuilder:rbac:groups=example.com,resources=webapps/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update

type webApps struct {
	client.Client
	scheme *runtime.Scheme
}

func (w *webApps) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var app v1.WebApp
	if err := w.Get(ctx, request.NamespacedName, &app); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if app.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	made := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, w.Client, made, func() error {
		labels := map[string]string{"app.kubernetes.io/instance": app.Name}
		surge, unavailable := intstr.FromInt32(app.Spec.MaxSurge), intstr.FromInt32(1)
		made.Spec.Replicas = &app.Spec.Replicas
		made.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		made.Spec.Strategy = appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge:       &surge,
				MaxUnavailable: &unavailable,
			},
		}
		made.Spec.Template.Labels = labels
		if len(made.Spec.Template.Spec.Containers) != 1 {
			made.Spec.Template.Spec.Containers = []corev1.Container{{}}
		}
		container := &made.Spec.Template.Spec.Containers[0]
		container.Name = "web"
		container.Image = app.Spec.Image.Repository + ":" + app.Spec.Image.Tag
		return controllerutil.SetControllerReference(&app, made, w.scheme)
	})
	if err != nil || app.Status.Ready == made.Status.ReadyReplicas {
		return ctrl.Result{}, err
	}
	before := app.DeepCopy()
	app.Status.Ready = made.Status.ReadyReplicas
	return ctrl.Result{}, w.Status().Patch(ctx, &app, client.MergeFrom(before))
}

// +kubebuilder:webhook:path=/mutate-example-com-v1-webapp,mutating=true,failurePolicy=fail,sideEffects=None,groups=example.com,resources=webapps,verbs=create;update,versions=v1,name=mutate.webapps.example.com,admissionReviewVersions=v1

type defaulter struct{}

func (defaulter) Default(_ context.Context, app *v1.WebApp) error {
	if app.Spec.Image.Tag == "" {
		app.Spec.Image.Tag = "latest"
	}
	return nil
}

// +kubebuilder:webhook:path=/validate-example-com-v1-webapp,mutating=false,failurePolicy=fail,sideEffects=None,groups=example.com,resources=webapps,verbs=create;update,versions=v1,name=validate.webapps.example.com,admissionReviewVersions=v1

type validator struct{}

func validate(app *v1.WebApp) (admission.Warnings, error) {
	var warnings admission.Warnings
	if app.Spec.Image.Tag == "latest" {
		warnings = append(warnings, "spec.image.tag: latest may be another image at each start")
	}
	if app.Spec.MaxSurge > app.Spec.Replicas {
		text := fmt.Sprintf("at most spec.replicas, which is %d", app.Spec.Replicas)
		return warnings, field.Invalid(field.NewPath("spec", "maxSurge"), app.Spec.MaxSurge, text)
	}
	return warnings, nil
}

func (validator) ValidateCreate(_ context.Context, app *v1.WebApp) (admission.Warnings, error) {
	return validate(app)
}

func (validator) ValidateUpdate(_ context.Context, _, app *v1.WebApp) (admission.Warnings, error) {
	return validate(app)
}

func (validator) ValidateDelete(context.Context, *v1.WebApp) (admission.Warnings, error) {
	return nil, nil
}

func main() {
	ctrl.SetLogger(zap.New())
	setupLog := ctrl.Log.WithName("setup")
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1.AddToScheme(scheme))
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		HealthProbeBindAddress: ":8081",
	})
	if err != nil {
		setupLog.Error(err, "unable to create manager")
		os.Exit(1)
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&v1.WebApp{}).
		Owns(&appsv1.Deployment{}).
		Complete(&webApps{manager.GetClient(), scheme})
	if err != nil {
		setupLog.Error(err, "unable to create controller")
		os.Exit(1)
	}
	err = ctrl.NewWebhookManagedBy(manager, &v1.WebApp{}).
		WithDefaulter(defaulter{}).
		WithValidator(validator{}).
		Complete()
	if err != nil {
		setupLog.Error(err, "unable to create webhook")
		os.Exit(1)
	}
	utilruntime.Must(manager.AddHealthzCheck("healthz", healthz.Ping))
	utilruntime.Must(manager.AddReadyzCheck("readyz", manager.GetWebhookServer().StartedChecker()))
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		setupLog.Error(err, "problem running manager")
		os.Exit(1)
	}
}
