// Kubernetes' own programs in one binary, which picks one by the name it is called by (argv[0]).
//
// One binary instead of six because they share nearly all their code: it is linked once and takes 150 MB, not 500.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name == "etcd" {
		etcdmain.Main(os.Args) // has a command line of its own and never returns an error
		return
	}
	command := command(name)
	if command == nil {
		fmt.Fprintf(os.Stderr, "%s: call me etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet or kube-proxy\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}

// command is the program of that name, or nil. Only the wanted one is made: each registers flags and metrics globally.
func command(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		return proxy.NewProxyCommand()
	}
	return nil
}
