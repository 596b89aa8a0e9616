// Types of the header shell: the base transport header of RoCEv2 (InfiniBand Architecture volume 1, section 9.2), and
// what the transport logic of a sender is told of a packet.
package shell_pkg;
  // The longest header that is decoded: that of a congestion notification.
  localparam int unsigned HEADER_BYTES = 28;
  localparam int unsigned BTH_BYTES = 12;

  localparam logic [7:0] OPCODE_ACKNOWLEDGE = 8'h11;
  localparam logic [7:0] OPCODE_PULL = 8'h19;
  localparam logic [7:0] OPCODE_CNP = 8'h81;

  // Without the partition key, which is always the default one.
  typedef struct packed {
    logic [7:0]  opcode;
    logic        solicited;
    logic        migrated;
    logic [1:0]  pad;
    logic [3:0]  version;
    logic        fecn;
    logic        becn;
    logic [23:0] dest_qpn;
    logic        ack_request;
    logic [23:0] psn;
  } bth_t;

  // As `rnic_tonic::Packet`: what a flow's receiver reports. `cum` is valid with `ack`, `nack` or `trimmed`, `sack` with
  // `sacked` or `trimmed`, `granted` with `has_grant`.
  typedef struct packed {
    logic        ack;
    logic        nack;
    logic        trimmed;
    logic        cnp;
    logic        sacked;
    logic        has_grant;
    logic [23:0] cum;
    logic [23:0] sack;
    logic [23:0] granted;
  } report_t;
endpackage
