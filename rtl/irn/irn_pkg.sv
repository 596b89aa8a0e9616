// Constants and types of IRN's modules (SIGCOMM'18, section 6.2.1).
//
// Contexts have flat ports, because their widths depend on the width W of the ring bitmaps, a power of two. A bit of a
// ring is at position id mod W; since W divides 2^24, a bitmap needs no index of its own. Ids are 24 bits wide and
// compared by `serial_after`.
//
// Codes are constants and not enumerations: yosys 0.23 cannot elaborate the enumeration of a package twice.
package irn_pkg;
  localparam int unsigned ID_W = 24;

  // Code of a packet in the 2-bitmap (section 5.3.3); zero when it has not arrived. The high bit says that it advances
  // the message sequence number once all packets before it have arrived.
  localparam logic [1:0] ARRIVED = 2'd1;
  localparam logic [1:0] ENDS_MESSAGE = 2'd2;
  localparam logic [1:0] COMPLETES_RECEIVE = 2'd3;

  // Acknowledgement that a receiver sends: everything before the cumulative id has arrived; and also the packet with
  // the selective id, but not that with the cumulative id; or a packet beyond the window was dropped.
  localparam logic [1:0] ACK = 2'd0;
  localparam logic [1:0] NACK = 2'd1;
  localparam logic [1:0] NACK_OUTSIDE = 2'd2;

  // Change of the retransmission timer: it continues as it is; it runs from now on, for RTO_low; it stops; or it runs
  // from now on, for RTO_high - RTO_low.
  localparam logic [1:0] KEEP = 2'd0;
  localparam logic [1:0] RESTART = 2'd1;
  localparam logic [1:0] STOP = 2'd2;
  localparam logic [1:0] EXTEND = 2'd3;

  // The four flags of section 6.1.
  typedef struct packed {
    // Not used, zero.
    logic spare;
    // A timeout has started the recovery, and no acknowledgement has been processed since. What is to be sent again
    // ends at the highest packet that is acknowledged selectively: a position that only the bitmap has.
    logic timed_out;
    // The timer was extended to RTO_high.
    logic extended;
    // Lost packets are being sent again.
    logic recovering;
  } flags_t;
endpackage
