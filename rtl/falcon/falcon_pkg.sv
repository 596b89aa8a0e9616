// Types of Falcon's circuits. Source: Falcon (SIGCOMM'25) section 4.1, specification Rev 0.9 sections 9.2.1, 9.2.2.
package falcon_pkg;
  // Packets from the base on that a window can record.
  parameter int unsigned TRACKED = 128;

  // A window of a receiver. Bit 0 of both maps belongs to the packet at `base`, the oldest that is not acknowledged;
  // its bit in `acknowledged` is therefore always clear.
  typedef struct packed {
    logic [31:0]  base;
    logic         dropped;       // packets beyond the window were dropped, and no acknowledgement has said so
    logic [127:0] received;
    logic [127:0] acknowledged;  // the sender may release them
  } window_t;

  typedef enum logic [2:0] {
    AT_ACKNOWLEDGED = 3'd0,
    AT_RECEIVED     = 3'd1,
    AT_NEW          = 3'd2,
    AT_BEYOND       = 3'd3,  // beyond the window, within the maps
    AT_OUTSIDE      = 3'd4
  } position_t;

  typedef enum logic [1:0] {
    DO_ARRIVE      = 2'd0,  // a packet arrives, and is kept if it is new
    DO_ACKNOWLEDGE = 2'd1,  // a packet that was received may be released by its sender
    DO_REFUSE      = 2'd2,  // a packet arrives for which there are no resources
    DO_REPORT      = 2'd3   // an acknowledgement with bitmaps is sent
  } operation_t;
endpackage
