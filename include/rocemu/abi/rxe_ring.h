// The ring layout of the librxe provider (Linux uAPI rdma_user_rxe.h, layout-stable from rdma-core
// 28 to 65), stated as offsets so that the engine needs no kernel header. control/ asserts each
// offset against the uAPI header. Host byte order throughout except immediate data, which is
// big-endian as in verbs. Every byte of these rings is the client's to write: see the rules at the
// users.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocemu::rxe {

// struct rxe_queue_buf: the head of each ring.
inline constexpr std::size_t kQueueLog2ElemSize = 0;
inline constexpr std::size_t kQueueIndexMask = 4;
inline constexpr std::size_t kQueueProducerIndex = 128;
inline constexpr std::size_t kQueueConsumerIndex = 256;
inline constexpr std::size_t kQueueData = 384;

// struct rxe_send_wqe.
inline constexpr std::size_t kSendWrId = 0;
inline constexpr std::size_t kSendOpcode = 12;      // IBV_WR_*
inline constexpr std::size_t kSendFlags = 16;       // IBV_SEND_*
inline constexpr std::size_t kSendEx = 20;          // imm_data (big-endian) or invalidate_rkey
inline constexpr std::size_t kSendRemoteAddr = 24;  // rdma and atomic
inline constexpr std::size_t kSendRdmaRkey = 32;
inline constexpr std::size_t kSendAtomicCompareAdd = 32;
inline constexpr std::size_t kSendAtomicSwap = 40;
inline constexpr std::size_t kSendAtomicRkey = 48;
inline constexpr std::size_t kSendUdRemoteQpn = 24;
inline constexpr std::size_t kSendUdRemoteQkey = 28;
inline constexpr std::size_t kSendUdPkeyIndex = 32;
inline constexpr std::size_t kSendUdAhNum = 36;
inline constexpr std::size_t kSendUdAv =
    56;  // struct rxe_av, used when ah_num is 0 (providers before v39)
inline constexpr std::size_t kSendMwAddr = 24;
inline constexpr std::size_t kSendMwLength = 32;
inline constexpr std::size_t kSendMwMrLkey = 40;
inline constexpr std::size_t kSendMwMwRkey = 44;
inline constexpr std::size_t kSendMwRkey = 48;
inline constexpr std::size_t kSendMwAccess = 52;
inline constexpr std::size_t kSendFlushLength = 32;  // FLUSH: providers of rdma-core 45 and later
inline constexpr std::size_t kSendFlushRkey = 36;
inline constexpr std::size_t kSendFlushType = 40;   // IBV_FLUSH_*
inline constexpr std::size_t kSendFlushLevel = 41;  // enum ibv_selectivity_level
inline constexpr std::size_t kSendStatus = 144;
inline constexpr std::size_t kSendState = 148;
inline constexpr std::size_t kSendIova = 152;
inline constexpr std::size_t kSendDma = 184;       // struct rxe_dma_info
inline constexpr std::size_t kSendWqeBytes = 208;  // then SGEs or inline data

// struct rxe_dma_info, relative to its start.
inline constexpr std::size_t kDmaLength = 0;
inline constexpr std::size_t kDmaNumSge = 12;
inline constexpr std::size_t kDmaData = 24;

// struct rxe_sge.
inline constexpr std::size_t kSgeAddr = 0;
inline constexpr std::size_t kSgeLength = 8;
inline constexpr std::size_t kSgeLkey = 12;
inline constexpr std::size_t kSgeBytes = 16;

// struct rxe_recv_wqe.
inline constexpr std::size_t kRecvWrId = 0;
inline constexpr std::size_t kRecvDma = 16;
inline constexpr std::size_t kRecvWqeBytes = 40;

// struct ib_uverbs_wc: what a user CQ of librxe holds; elements are rounded up to 64 bytes.
inline constexpr std::size_t kWcWrId = 0;
inline constexpr std::size_t kWcStatus = 8;
inline constexpr std::size_t kWcOpcode = 12;
inline constexpr std::size_t kWcVendorErr = 16;
inline constexpr std::size_t kWcByteLen = 20;
inline constexpr std::size_t kWcEx = 24;  // imm_data (big-endian) or invalidate_rkey
inline constexpr std::size_t kWcQpNum = 28;
inline constexpr std::size_t kWcSrcQp = 32;
inline constexpr std::size_t kWcFlags = 36;
inline constexpr std::size_t kWcPkeyIndex = 40;
inline constexpr std::size_t kWcSlid = 42;
inline constexpr std::size_t kWcSl = 44;
inline constexpr std::size_t kWcDlidPathBits = 45;
inline constexpr std::size_t kWcPortNum = 46;
inline constexpr std::size_t kWcBytes = 48;
inline constexpr std::size_t kCqElementBytes = 64;

}  // namespace rocemu::rxe
