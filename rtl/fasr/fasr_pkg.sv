// Types of FaSR's circuits. Source: FaSR (2025) sections III and IV.
//
// The first field of a packed structure is in its highest bits.
package fasr_pkg;
  // Units of the pool of recovery states (level 1), blocks of the pool of bitmaps (level 2) and bits of a block
  // (section III-D).
  parameter int unsigned UNITS = 20;
  parameter int unsigned BLOCKS = 70;
  parameter int unsigned BLOCK_BITS = 10;
  // Bits of a unit (`sr_unit_t`), of the 38 bytes of section III-D.
  parameter int unsigned UNIT_BITS = 206;
  // Width of the index of a queue pair.
  parameter int unsigned QP_W = 10;
  // Packets from RCV-NXT on that a receiver can record.
  parameter int unsigned REACH = 512;
  // Maximum number of packets in flight of a queue pair.
  parameter int unsigned CAP = 500;

  typedef logic [23:0] psn_t;
  typedef logic [QP_W-1:0] qp_t;
  typedef logic [6:0] block_t;
  typedef logic [4:0] unit_t;
  typedef logic [BLOCK_BITS-1:0] word_t;

  // Number of missing packets. Once more than seven are missing, `overflow` is set and `count` stays at 7 until the
  // recovery is over (R-1, R-16).
  typedef struct packed {
    logic       overflow;
    logic [2:0] count;
  } lost_t;
  parameter lost_t LOST_ONE = 4'b0001;
  parameter lost_t LOST_OVERFLOW = 4'b1111;

  // A bitmap of a unit: the packets received behind a gap. Only with `slow` there are blocks in the list.
  typedef struct packed {
    logic       open;
    logic       fallen;  // receiver: no packet is kept until the recovery is over (R-14)
    logic       slow;
    lost_t      lost;    // receiver only
    psn_t       high;    // sack-high
    logic [9:0] run;     // compression-cnt: consecutive packets directly behind the gap (R-13)
    psn_t       base;    // packet of the first bit of the head block
    psn_t       last;    // packet of the first bit of the tail block
    block_t     head;
    block_t     tail;
  } lane_t;

  // A unit: the bitmaps of a queue pair's receiver and of its sender.
  typedef struct packed {
    lane_t tx;
    lane_t rx;
  } sr_unit_t;

  // Context of a queue pair, first group: written by the SR module.
  typedef struct packed {
    // Receiver.
    psn_t  rcv_nxt;
    logic  gap_seen;      // a gap has been reported, with `gap_at` the last packet seen behind it
    psn_t  gap_at;
    logic  refuses;       // no packet is kept before `refuses_to`, because no unit or block was free
    psn_t  refuses_to;
    // Sender.
    psn_t  una;
    logic  recovering;
    logic  acted;         // an FNACK, NAK or timeout was processed since the last new acknowledgement (R-15)
    lost_t lost;          // lost-cnt as last reported
    // Pointer to the unit.
    logic  held;
    unit_t unit;
  } sr_t;

  // Context of a queue pair, third group: the retransmission timer.
  typedef struct packed {
    logic        on;
    logic        extended;
    logic [23:0] deadline;
  } timer_t;

  typedef enum logic [3:0] {
    EV_DATA    = 4'd0,
    EV_ACK     = 4'd1,
    EV_SACK    = 4'd2,
    EV_AACK    = 4'd3,
    EV_FNACK   = 4'd4,
    EV_NAK     = 4'd5,
    EV_TIMEOUT = 4'd6,
    EV_EXTEND  = 4'd7,
    EV_ARM     = 4'd8,
    EV_RELEASE = 4'd9
  } event_kind_t;

  // An event of the SR module. `cumulative` is the packet that the peer expects.
  typedef struct packed {
    qp_t         qp;
    event_kind_t kind;
    psn_t        cumulative;
    psn_t        psn;
    lost_t       lost;
  } event_t;

  typedef enum logic [2:0] {
    SAY_ACK   = 3'd0,
    SAY_SACK  = 3'd1,
    SAY_AACK  = 3'd2,
    SAY_FNACK = 3'd3,
    SAY_NAK   = 3'd4,
    SAY_NONE  = 3'd5
  } say_t;

  // An acknowledgement to send; `placed` tells the DMA engine to write the packet's payload.
  typedef struct packed {
    qp_t   qp;
    say_t  kind;
    logic  placed;
    psn_t  cumulative;
    psn_t  psn;
    lost_t lost;
  } ack_t;

  // Packets to retransmit: `arg` packets from `psn` on, or, with `is_map`, those of the bits of `arg`.
  typedef struct packed {
    qp_t        qp;
    psn_t       psn;
    logic       is_map;
    logic [9:0] arg;
  } retx_t;

  // Packets of a work request that are still to be sent for the first time.
  typedef struct packed {
    qp_t         qp;
    logic [15:0] packets;
  } wqe_t;

  // A command of the driver: a queue pair is created or destroyed. The number of a queue pair on the wire is its index,
  // preceded by `tag`.
  typedef struct packed {
    logic        creates;
    qp_t         qp;
    logic [13:0] tag;
    psn_t        rcv_nxt;
    psn_t        una;
  } command_t;

  // A received packet: `qpn` is that of the receiver.
  typedef struct packed {
    logic [23:0] qpn;
    event_kind_t kind;
    psn_t        cumulative;
    psn_t        psn;
    lost_t       lost;
  } received_t;

  // Classes of packets to send, in the order of their priorities.
  typedef enum logic [1:0] {
    SEND_ACK   = 2'd0,
    SEND_RDREQ = 2'd1,
    SEND_RETX  = 2'd2,
    SEND_NEW   = 2'd3
  } send_class_t;

  // A packet to send: with SEND_ACK, an acknowledgement; otherwise only queue pair and packet number matter.
  typedef struct packed {
    send_class_t class_;
    ack_t        ack;
  } send_t;

  // What has to be done with the blocks of a bitmap after an event, by the steps of `fasr_sr`.
  typedef enum logic [2:0] {
    THEN_NONE    = 3'd0,
    THEN_APPEND  = 3'd1,  // take `needed` blocks
    THEN_WALK    = 3'd2,  // find the next gap
    THEN_RELEASE = 3'd3,  // release the whole list
    THEN_TRIM    = 3'd4,  // release the blocks before UNACK, then process the event again
    THEN_SEEK    = 3'd5,  // set the bit of a packet in a block before the tail
    THEN_SCAN    = 3'd6   // retransmit the packets whose bits are zero
  } then_t;
endpackage
