// Links in words to DPDK's arguments.
#include "dataplane/dpdk/devargs.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace rocemu::dpdk {
namespace {

PortArguments made(std::string_view link) { return make_port_arguments(link, "roce0").value(); }

TEST(Devargs, MemifServer) {
  const auto port = made("memif:/run/m.sock,role=server");
  EXPECT_EQ(port.name, "net_memif_roce0");
  EXPECT_EQ(port.option, "--vdev");
  EXPECT_EQ(
      port.devargs,
      "net_memif_roce0,socket=/run/m.sock,role=server,socket-abstract=no,bsize=8192,rsize=11");
  EXPECT_EQ(port.server_socket, "/run/m.sock");
}

TEST(Devargs, MemifIsAClientUnlessToldOtherwise) {
  const auto port = made("memif:/m");
  EXPECT_EQ(port.devargs,
            "net_memif_roce0,socket=/m,role=client,socket-abstract=no,bsize=8192,rsize=11");
  EXPECT_EQ(port.server_socket, "");
  EXPECT_EQ(made("memif:/m,role=client").devargs, port.devargs);
}

TEST(Devargs, GivenArgumentsWinOverDefaults) {
  EXPECT_EQ(made("memif:/m,bsize=2048,id=7").devargs,
            "net_memif_roce0,socket=/m,bsize=2048,id=7,role=client,socket-abstract=no,rsize=11");
  const auto abstract = made("memif:m,role=server,socket-abstract=yes");
  EXPECT_EQ(abstract.server_socket, "") << "no file to remove";
  EXPECT_EQ(made("af_packet:eth1,framecnt=512").devargs,
            "net_af_packet_roce0,iface=eth1,framecnt=512,blocksz=36864,framesz=4608");
}

TEST(Devargs, AKeyInsideAValueIsNoKey) {
  EXPECT_EQ(made("memif:/m,secret=role=server").server_socket, "");
  EXPECT_NE(made("memif:/m,mybsize=1").devargs.find(",bsize=8192"), std::string::npos);
}

TEST(Devargs, AfPacketFramesHoldTheLargestOfOurs) {
  const auto port = made("af_packet:veth-a");
  EXPECT_EQ(port.name, "net_af_packet_roce0");
  EXPECT_EQ(port.devargs,
            "net_af_packet_roce0,iface=veth-a,blocksz=36864,framesz=4608,framecnt=1024");
  EXPECT_EQ(36864 % 4096, 0);
  EXPECT_EQ(36864 % 4608, 0);
}

TEST(Devargs, OthersPassThrough) {
  const auto vdev = made("vdev:net_tap0,iface=t0,mac=fixed");
  EXPECT_EQ(vdev.name, "net_tap0");
  EXPECT_EQ(vdev.option, "--vdev");
  EXPECT_EQ(vdev.devargs, "net_tap0,iface=t0,mac=fixed");
  const auto pci = made("pci:0000:01:00.0,representor=0");
  EXPECT_EQ(pci.name, "0000:01:00.0");
  EXPECT_EQ(pci.option, "-a");
  EXPECT_EQ(pci.devargs, "0000:01:00.0,representor=0");
}

TEST(Devargs, NonsenseIsRefusedWithASentence) {
  const std::string long_path(108, 'x');
  for (const std::string& link :
       {std::string(), std::string("memif"), std::string("memif:"),
        std::string("memif:,role=server"), std::string("memif:/m,role=master"),
        "memif:" + long_path, std::string("af_packet:"), std::string("af_packet:sixteen-letters-"),
        std::string("vdev:"), std::string("pci:"), std::string("wire:w"),
        std::string("token-ring:x"), std::string("vdev:net_ring0 --no-huge"),
        "vdev:" + long_path}) {
    const auto port = make_port_arguments(link, "roce0");
    ASSERT_FALSE(port.ok()) << link;
    EXPECT_EQ(port.error().code, EINVAL) << link;
    EXPECT_NE(port.error().text.find(link), std::string::npos) << port.error().text;
  }
  EXPECT_TRUE(make_port_arguments("memif:" + long_path.substr(1), "roce0").ok());
}

}  // namespace
}  // namespace rocemu::dpdk
